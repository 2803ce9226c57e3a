// The chart component's painting: colours for light and dark pages, lettering for narrow ones.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  channels, isDark, legendInTitle, legendRows, narrowed, painted, swapped, wrapped,
} from '../../fmha/chart/frontend/paint.mjs';

const SWAPS = { '#2b8eea': '#9cc4ff' };
const LOOK = { text: '#eee', ground: '#10151c', panel: '#222', border: '#444', font: 'Some Sans' };
const FIGURE = {
  data: [
    { name: 'Q', line: { color: '#2B8EEA' }, fillcolor: 'rgba(43,142,234,0.2)', y: { dtype: 'f8', bdata: 'AA==' } },
    { name: 'K', line: { color: '#d5770f' } },
  ],
  layout: { title: { text: 'a title' }, xaxis: { title: { text: '#2b8eea is a colour' } }, template: { layout: {} } },
};

test('colours are read in the ways that pages and figures write them', () => {
  assert.deepEqual(channels('#fff'), [255, 255, 255]);
  assert.deepEqual(channels(' #10151C '), [16, 21, 28]);
  assert.deepEqual(channels('rgba(43, 142, 234, 0.2)'), [43, 142, 234]);
  assert.equal(channels('rebeccapurple'), null);
  assert.equal(isDark('#10151c'), true);
  assert.equal(isDark('rgb(255, 255, 255)'), false);
  assert.equal(isDark(''), false);
});

test('role colours are exchanged wherever they stand, opacity is kept, texts and data are not touched', () => {
  const { data, layout } = swapped(FIGURE, SWAPS);
  assert.equal(data[0].line.color, '#9cc4ff');
  assert.equal(data[0].fillcolor, 'rgba(156,196,255,0.2)');
  assert.deepEqual(data[0].y, FIGURE.data[0].y);
  assert.equal(data[1].line.color, '#d5770f');
  assert.equal(layout.title.text, 'a title');
  assert.equal(FIGURE.data[0].line.color, '#2B8EEA', 'the figure that came in is left as it was');
});

test('a light page keeps the role colours; both get the page text colour and clear grounds', () => {
  for (const dark of [false, true]) {
    const { data, layout } = painted(FIGURE, SWAPS, LOOK, dark);
    assert.equal(data[0].line.color, dark ? '#9cc4ff' : '#2B8EEA');
    assert.equal(layout.font.color, LOOK.text);
    assert.equal(layout.hoverlabel.font.color, LOOK.text);
    assert.equal(layout.paper_bgcolor, 'rgba(0,0,0,0)');
    assert.ok(layout.xaxis.gridcolor && layout.yaxis.gridcolor);
    assert.equal(layout.xaxis.title.text, FIGURE.layout.xaxis.title.text);
  }
});

test('a narrow column gets smaller lettering and a title that fits', () => {
  const figure = { data: [], layout: { title: { text: 'bytes moved against length in tokens' }, xaxis: {} } };
  const { layout } = narrowed(figure, 200);
  assert.equal(layout.title.text, 'bytes moved against length<br>in tokens');
  assert.ok(layout.margin.t >= 14 + 2 * 19);
  assert.ok(layout.xaxis.tickfont.size < 14);
  assert.equal(figure.layout.title.text, 'bytes moved against length in tokens');
});

test('a narrow column gets what the figure itself wants there', () => {
  const narrow = { annotations: { 1: { text: 'short', x: 0 } }, xaxis: { range: [0, 1] } };
  const layout = {
    annotations: [{ text: 'one' }, { text: 'a long one', x: 5, y: 2 }], shapes: [{ x0: 1 }],
    xaxis: { type: 'log', range: [0, 9] }, meta: { narrow },
  };
  const made = narrowed({ data: [], layout }, 300).layout;
  assert.deepEqual(made.annotations, [{ text: 'one' }, { text: 'short', x: 0, y: 2 }]);
  assert.deepEqual(made.shapes, [{ x0: 1 }]);
  assert.deepEqual([made.xaxis.range, made.xaxis.type], [[0, 1], 'log']);
  assert.equal(layout.annotations[1].text, 'a long one', 'the figure that came in is left as it was');
});

test('titles with tags are not broken', () => {
  assert.equal(wrapped('<b>a bold title</b> and more', 8), '<b>a bold title</b> and more');
  assert.equal(wrapped('one two<br>three', 3), 'one<br>two<br>three');
});

test('legend rows are counted only for a legend above the plot', () => {
  const data = [{ name: 'naive attention' }, { name: 'flash, Q tiles outside' }, { name: 'x', showlegend: false }];
  const above = { orientation: 'h', y: 1 };
  assert.equal(legendRows({ data, layout: { legend: above } }, 300), 2);
  assert.equal(legendRows({ data, layout: { template: { layout: { legend: above } } } }, 900), 1);
  assert.equal(legendRows({ data, layout: { legend: { orientation: 'v' } } }, 300), 0);
  assert.equal(legendRows({ data, layout: { legend: above, showlegend: false } }, 300), 0);
});

test('names that do not fit into one row stand in columns as wide as the longest', () => {
  const layout = { legend: { orientation: 'h', y: 1 } };
  const named = (...names) => ({ data: names.map((name) => ({ name })), layout });
  assert.equal(legendRows(named('Q', 'K', 'V'), 358), 1);
  const five = named('naive: requested', 'flash, q-outer: requested', 'flash, kv-outer: requested', 'compulsory', 'N');
  assert.equal(legendRows(five, 358), 5, 'the short ones too have a row each');
});

test('a legend that reaches into the title is noticed', () => {
  const at = (top, bottom) => ({ getBoundingClientRect: () => ({ top, bottom }) });
  const node = (found) => ({ querySelector: (name) => found[name] ?? null });
  assert.equal(legendInTitle(node({ '.gtitle': at(2, 21), '.legend': at(9, 57) })), 14);
  assert.equal(legendInTitle(node({ '.gtitle': at(2, 21), '.legend': at(23, 57) })), 0);
  assert.equal(legendInTitle(node({ '.legend': at(9, 57) })), 0);
});
