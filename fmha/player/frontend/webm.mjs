// A recorder's WebM does not say how long it lasts. This writes it into the file's head, where readers look for it.
import { joined } from "./gif.mjs";

const SEGMENT = 0x18538067, INFO = 0x1549a966, DURATION = 0x4489, EBML = 0x1a45dfa3;

/** The same file with its duration; unchanged where its head is not laid out as expected. */
export function withDuration(bytes, milliseconds) {
  const first = element(bytes, 0);
  if (first?.id !== EBML) return bytes;
  const segment = element(bytes, first.end);
  if (segment?.id !== SEGMENT || segment.size !== null) return bytes; // of known size: its writer knew the length, too
  for (let at = segment.body; at < bytes.length;) {
    const part = element(bytes, at);
    if (!part || part.size === null) return bytes;
    if (part.id === INFO) return inserted(bytes, part, milliseconds);
    at = part.end;
  }
  return bytes;
}

function inserted(bytes, info, milliseconds) {
  const kept = [];
  for (let at = info.body; at < info.end;) {
    const part = element(bytes, at);
    if (!part || part.size === null) return bytes;
    if (part.id !== DURATION) kept.push(bytes.subarray(at, part.end));
    at = part.end;
  }
  const value = new DataView(new ArrayBuffer(8));
  value.setFloat64(0, milliseconds); // the unit is the file's: a millisecond, unless it says otherwise
  const body = joined([...kept, Uint8Array.of(0x44, 0x89, 0x88), new Uint8Array(value.buffer)]);
  const head = Uint8Array.of(0x15, 0x49, 0xa9, 0x66);
  const size = new DataView(new ArrayBuffer(4));
  size.setUint32(0, (0x10000000 | body.length) >>> 0); // four size bytes begin with the bits 0001
  return joined([bytes.subarray(0, info.at), head, new Uint8Array(size.buffer), body, bytes.subarray(info.end)]);
}

/** The element at a place: {id, size (null: unknown), at, body, end}; null where the bytes end. */
function element(bytes, at) {
  const id = varint(bytes, at, false), size = id && varint(bytes, at + id.length, true);
  if (!size) return null;
  const body = at + id.length + size.length;
  return { id: id.value, size: size.value, at, body, end: size.value === null ? bytes.length : body + size.value };
}

function varint(bytes, at, isSize) {
  const first = bytes[at];
  if (!first) return null;
  const length = Math.clz32(first) - 23;
  if (at + length > bytes.length) return null;
  let value = isSize ? first & (0xff >> length) : first, ones = value === 0xff >> length;
  for (let k = 1; k < length; k++) {
    value = value * 256 + bytes[at + k];
    ones &&= bytes[at + k] === 0xff;
  }
  return { length, value: isSize && ones ? null : value };
}
