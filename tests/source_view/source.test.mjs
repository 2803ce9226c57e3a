// The source listing: what a row looks like, and where the arrow keys go.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isDark, markOf, nextUsed, rowElement, rowState } from '../../fmha/source_view/frontend/source.mjs';

/** As much of a document as rows need. */
const doc = {
  createElement: (tag) => ({
    tag,
    children: [],
    dataset: {},
    attributes: {},
    style: { setProperty(name, value) { this[name] = value; } },
    setAttribute(name, value) { this.attributes[name] = value; },
    append(...nodes) { this.children.push(...nodes); },
  }),
};
const message = { picks: true, chosen: 3, now: 4, strip: { title: 'x' }, colors: { S: '#123456' } };

test('a row has its number, its strip and its code, letter by letter', () => {
  const row = { no: 3, code: [['k', 'int'], ['', ' <b>a</b>;']], role: 'S', share: 0.25, value: '1.2 k', used: true };
  const node = rowElement(doc, row, message);
  assert.equal(node.className, 'row chosen');
  assert.equal(node.dataset.line, 3);
  assert.equal(node.attributes['aria-selected'], 'true');
  assert.equal(node.style['--phase'], '#123456');
  const [left, code] = node.children;
  assert.deepEqual(code.children.map((c) => c.textContent ?? c), ['int', ' <b>a</b>;']);
  const heat = left.children.at(-1);
  assert.equal(heat.children[0].style.width, '25%');
  assert.equal(heat.children[1].textContent, '1.2 k');
});

test('a small share can still be seen, none has no bar', () => {
  const small = rowElement(doc, { no: 1, code: [], share: 1e-6, value: '1', used: true }, message);
  assert.equal(small.children[0].children.at(-1).children[0].style.width, '1.5%');
  const none = rowElement(doc, { no: 1, code: [] }, message);
  assert.equal(none.children[0].children.at(-1).children.length, 1);
});

test('states and signs', () => {
  assert.equal(markOf({ no: 4 }, message), '▶');
  assert.equal(markOf({ no: 4, bad: true }, message), '✖');
  assert.equal(markOf({ code: [] }, { now: undefined }), '');
  assert.deepEqual(rowState({ code: [] }, { ...message, now: undefined, chosen: undefined }), {
    title: false, bad: false, now: false, chosen: false, instead: true, plain: true,
  });
  assert.equal(rowState({ no: 5, used: true }, message).plain, false);
  assert.equal(rowState({ no: 5, used: true }, { ...message, picks: false }).plain, true);
});

test('arrow keys go from used line to used line and stop at the ends', () => {
  const rows = [{ no: 1 }, { no: 2, used: true }, { code: [] }, { no: 3 }, { no: 4, used: true }];
  assert.equal(nextUsed(rows, 0, 1), 2);
  assert.equal(nextUsed(rows, 2, 1), 4);
  assert.equal(nextUsed(rows, 4, 1), 4);
  assert.equal(nextUsed(rows, 4, -1), 2);
  assert.equal(nextUsed(rows, 2, -1), 2);
});

test('dark and light grounds', () => {
  assert.equal(isDark('#10151c'), true);
  assert.equal(isDark(' #fff'), false);
  assert.equal(isDark('rgb(16, 21, 28)'), true);
  assert.equal(isDark('canvas'), false);
});
