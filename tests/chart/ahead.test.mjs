// The library that draws charts is asked for once, early, and again after a failure.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { loadAhead } from '../../fmha/ui/frontend/scrollers.mjs';

function page() {
  const head = [];
  return {
    head: { append: (node) => head.push(node) },
    scripts: head,
    getElementById: (id) => head.find((node) => node.id === id) ?? null,
    createElement: () => ({
      heard: {},
      addEventListener(name, hear) { this.heard[name] = hear; },
      remove() { head.splice(head.indexOf(this), 1); },
    }),
  };
}

test('one script, as the charts look for it', () => {
  const here = page();
  loadAhead('', here);
  assert.equal(here.scripts.length, 0, 'a page of words loads nothing');
  loadAhead('/plotly.min.js', here);
  loadAhead('/plotly.min.js', here);
  assert.deepEqual(here.scripts.map(({ id, src }) => [id, src]), [['fmha-plotly', '/plotly.min.js']]);
  here.scripts[0].heard.error();
  assert.equal(here.scripts.length, 0, 'the first chart tries again');
});
