// The page as a visitor uses it, in headless Chromium. What it must show is worked out by hand where a figure is documented,
// and by the library run in Node elsewhere.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { PAGE_FILE, Visitor, loadModule, shown, startBrowser, startLibrary } from './helpers.mjs';

let place;
let engine;
before(async () => {
  engine = await startLibrary();
  place = await startBrowser();
});
after(() => place.stop());

/** Opens a page, runs the body, and fails on anything the page complained about. */
function visit(name, options, body) {
  test(name, async () => {
    const visitor = await Visitor.open(place, options);
    try {
      await body(visitor);
      assert.deepEqual(visitor.complaints, []);
    } finally {
      await visitor.close();
    }
  });
}

function sentenceOf(line) {
  try {
    engine.plan(line);
  } catch (error) {
    return error.message;
  }
  throw new Error(`The library accepts "${line}".`);
}

visit('the worked example is on the page', {}, async (visitor) => {
  assert.deepEqual(await visitor.grid('x'), shown([[1, 2, 3], [4, 5, 6], [7, 8, 9]]));
  assert.deepEqual(await visitor.grid('y'), shown([[5, 6], [8, 9]]));
  assert.deepEqual(await visitor.grid('dy'), shown([[1, 2], [3, 4]]));
  assert.deepEqual(await visitor.grid('dx'), shown([[0, 0, 0], [0, 1, 2], [0, 3, 4]]));
  const winners = await visitor.page.locator('.grid-x .wins').count();
  assert.equal(winners, 4);
});

visit('it opens from a file too', { url: pathToFileURL(PAGE_FILE).href }, async (visitor) => {
  assert.deepEqual(await visitor.grid('y'), shown([[5, 6], [8, 9]]));
});

visit('every example shows what the library computes', {}, async (visitor) => {
  const { PRESETS } = await loadModule('src/presets.ts');
  const { pool } = await loadModule('src/pool.ts');
  const { fitDy } = await loadModule('src/state.ts');
  const { shortNumber } = await loadModule('src/numbers.ts');
  for (const { id, state } of PRESETS.filter((preset) => preset.state.mode === 'grid')) {
    await visitor.preset(id);
    const pooled = pool(engine, state);
    const dx = pooled.backward(fitDy(state.dy, pooled.outRows, pooled.outColumns));
    assert.deepEqual((await visitor.grid('y')).flat(), Array.from(pooled.y, (value) => shortNumber(value)), `${id}: y`);
    assert.deepEqual((await visitor.grid('dx')).flat(), Array.from(dx, (value) => shortNumber(value)), `${id}: dx`);
    assert.equal(await visitor.refusal(), null);
  }
});

visit('pointing at an input with four covering windows shows its sum', { hash: 'x=1,2,3;4,9,6;7,8,5&dy=1,20,300,4000' },
  async (visitor) => {
    await visitor.preset('worked');
    await visitor.cell('x', 1, 1).hover();
    assert.equal(await visitor.sum(), 'dx[1,1] = 1·1 + 0·2 + 0·3 + 0·4 = 1');
    assert.equal(await visitor.page.locator('.window-lit').count(), 4);
    assert.equal(await visitor.page.locator('.window-lit.gives').count(), 1);
    assert.equal(await visitor.page.locator('.route.backward').count(), 1);
    assert.match(await visitor.page.locator('#formula').innerText(), /=\s*1/);
    await visitor.cell('dx', 2, 2).hover();
    assert.equal(await visitor.sum(), 'dx[2,2] = 1·4 = 4');
  });

visit('messages of windows that share a winner add up', { hash: 'k=2x2&s=1x1&x=1,2,3;4,9,6;7,8,5&dy=1,20;300,4000' },
  async (visitor) => {
    await visitor.cell('dx', 1, 1).hover();
    assert.equal(await visitor.sum(), 'dx[1,1] = 1·1 + 1·20 + 1·300 + 1·4000 = 4321');
    assert.equal((await visitor.grid('dx'))[1][1], '4321');
    assert.equal(await visitor.page.locator('.route.backward').count(), 4);
  });

visit('pointing at an output lights its window and draws its route', {}, async (visitor) => {
  await visitor.cell('y', 0, 1).hover();
  assert.equal(await visitor.sum(), 'y[0,1] = max{2, 3, 5, 6} = 6, won by x[1,2]; dy[0,1] = 2 goes there');
  assert.equal(await visitor.page.locator('.window-lit').count(), 1);
  assert.equal(await visitor.page.locator('.grid-x .lit').count(), 4);
  assert.equal(await visitor.page.locator('.route').count(), 2);
  await visitor.rested();
  assert.equal(await visitor.page.locator('.route-chip.lit').count(), 1);
  await visitor.page.hover('h1');
  assert.equal(await visitor.page.locator('.route').count(), 0);
});

visit('a formula that grows does not move the cell it speaks of', { viewport: { width: 390, height: 844 } }, async (visitor) => {
  const { page } = visitor;
  await visitor.preset('large');
  await visitor.set({ 'stride-0': '1', 'stride-1': '1' });
  // The pointer on the last line of dx, with the formula and what follows it in sight.
  await visitor.cell('dx', 15, 8).evaluate((cell) => window.scrollBy(0, cell.getBoundingClientRect().top - 60));
  const place = await visitor.cell('dx', 15, 8).boundingBox();
  await page.mouse.move(place.x + place.width / 2, place.y + place.height / 2);
  const tops = await visitor.cell('dx', 15, 8).evaluate(async (cell) => {
    const seen = [];
    for (let frame = 0; frame < 8; frame += 1) {
      await new Promise((done) => requestAnimationFrame(done));
      seen.push(cell.getBoundingClientRect().top);
    }
    return [...new Set(seen)];
  });
  assert.equal(tops.length, 1, `the cell was seen at ${tops.join(' and ')}`);
  assert.ok(Math.abs(tops[0] - place.y) < 1, `the cell went from ${place.y} to ${tops[0]}`);
  assert.match(await visitor.sum(), /^dx\[15,8\] = /);
});

visit('each tie rule sends dy where it says', {}, async (visitor) => {
  await visitor.preset('ties');
  const expected = {
    first: [[4, 0, 6, 0], [0, 0, 0, 0], [12, 0, 8, 0], [0, 0, 0, 0]],
    last: [[0, 0, 0, 0], [0, 4, 0, 6], [0, 0, 0, 0], [0, 12, 0, 8]],
    split: [[1, 1, 2, 2], [1, 1, 0, 2], [4, 0, 2, 2], [4, 4, 2, 2]],
    all: [[4, 4, 6, 6], [4, 4, 0, 6], [12, 0, 8, 8], [12, 12, 8, 8]],
  };
  for (const [ties, dx] of Object.entries(expected)) {
    await visitor.set({ ties });
    assert.deepEqual(await visitor.grid('dx'), shown(dx), ties);
    assert.match(await visitor.text('rules-now'), new RegExp(`ties ${ties}`));
  }
  await visitor.set({ ties: 'split' });
  await visitor.cell('x', 0, 2).hover();
  assert.equal(await visitor.sum(), 'dx[0,2] = 1/3·6 = 2');
});

visit('a NaN goes where the dialect sends it', {}, async (visitor) => {
  await visitor.preset('nan');
  assert.deepEqual((await visitor.grid('y')).flat(), ['NaN', 'NaN', 'NaN', '7']);
  await visitor.set({ dialect: 'tfjs' });
  assert.deepEqual((await visitor.grid('y')).flat(), ['6', '8', '9', '7']);
});

visit('a ReLU in front: windows with nothing above 0 have no route and are greyed', {}, async (visitor) => {
  const { page } = visitor;
  await visitor.preset('relu');
  assert.deepEqual(await visitor.grid('y'), shown([[0, 3], [4, 0]]));
  assert.deepEqual(await visitor.grid('dx'), shown([[0, 0, 0, 0], [0, 0, 0, 2], [3, 0, 0, 0], [0, 0, 0, 0]]));
  const greyed = () => page.evaluate(() => ['.grid-y .no-route', '.grid-dy .no-route', '.window-faint.no-route']
    .map((selector) => document.querySelectorAll(selector).length));
  assert.deepEqual(await greyed(), [2, 2, 2]);
  await visitor.rested();
  assert.deepEqual(await page.locator('.route-meaning').allTextContents(), ['no route', 'tap 3', 'tap 0', 'no route']);
  assert.deepEqual(await page.locator('.kept-who').allTextContents(), ['poolgrad', 'TensorFlow', 'PyTorch', 'TensorFlow.js']);
  assert.deepEqual(await page.locator('.kept-bytes').allTextContents(), ['2 bytes', '80 bytes', '96 bytes', '144 bytes']);
  assert.match(await visitor.text('memory-lead'), /^For a ReLU and this pool/);
  assert.match(await page.locator('[data-line="relu"] .line-here').textContent(), /2 of 4 windows have nothing above 0/);
  await visitor.cell('y', 0, 0).hover();
  assert.equal(await visitor.sum(), 'y[0,0] = max{0, −3, −1, −2, −5} = 0; nothing is above 0, so dy[0,0] goes nowhere');
  assert.equal(await page.locator('.window-lit.idle').count(), 1);
  assert.equal(await page.locator('.route').count(), 0);
  // The line scrolls into sight, and the browser says a little later that the cell is no longer under the pointer.
  await page.focus('[data-line="relu"]');
  await page.waitForFunction(() => document.querySelectorAll('.window-lit.idle').length === 2);
  await page.uncheck('#relu');
  assert.deepEqual(await visitor.grid('y'), [['−1', '3'], ['4', '−1']]);
  assert.deepEqual(await greyed(), [0, 0, 0]);
  await visitor.rested();
  assert.equal(await page.locator('.kept-who').count(), 3);
});

visit('adaptive windows of different sizes overlap', {}, async (visitor) => {
  const { page } = visitor;
  await page.check('#adaptive');  // 3 to 3: every window is one input
  assert.deepEqual(await visitor.grid('y'), shown([[1, 2, 3], [4, 5, 6], [7, 8, 9]]));
  assert.equal(await page.locator('#kernel-0').isVisible(), false);
  await visitor.set({ rows: '5', columns: '5' });
  assert.equal(await page.inputValue('#problem'), 'max f32 nchw 1x1x5x5 adaptive=3x3');
  // Rows and columns [0, 2), [1, 4), [3, 5).
  const cell = await visitor.cell('x', 0, 0).boundingBox();
  const sides = await page.locator('.window-faint').evaluateAll((boxes) => boxes.map((box) => [box.getAttribute('width'), box.getAttribute('height')].map(Number)));
  const pitch = (await visitor.cell('x', 0, 1).boundingBox()).x - cell.x;
  assert.deepEqual(sides.map(([width, height]) => [Math.round(width / pitch), Math.round(height / pitch)]),
    [2, 3, 2].flatMap((height) => [2, 3, 2].map((width) => [width, height])));
  await visitor.cell('x', 1, 1).hover();
  assert.equal(await page.locator('.window-lit').count(), 4);
  await page.waitForFunction(() => location.hash.includes('adaptive=3x3'));  // when the hand rests
  await visitor.fill('outputs-0', '0');
  assert.equal(await visitor.refusal(), sentenceOf('max f32 nchw 1x1x5x5 adaptive=0x3'));
  await visitor.fill('outputs-0', '2');
  assert.equal((await visitor.grid('y')).length, 2);
  await visitor.fill('problem', 'max f32 nchw 1x1x7x4 adaptive=2x3 relu');
  await page.keyboard.press('Enter');
  assert.equal(await page.inputValue('#outputs-1'), '3');
  assert.ok(await page.isChecked('#relu'));
  await page.uncheck('#adaptive');
  assert.equal(await page.inputValue('#problem'), 'max f32 nchw 1x1x7x4 k2 s1 relu');
});

visit('what cannot be is refused in the library\'s own words, and the last good picture stays', {}, async (visitor) => {
  const before = [await visitor.grid('y'), await visitor.grid('dx')];
  const cases = [
    [{ 'stride-0': '0' }, { 'stride-0': '1' }, 'max f32 nchw 1x1x3x3 k2 s0x1'],
    [{ 'kernel-0': '5', 'kernel-1': '5' }, { 'kernel-0': '2', 'kernel-1': '2' }, 'max f32 nchw 1x1x3x3 k5 s1'],
    [{ 'dilation-1': '-1' }, { 'dilation-1': '1' }, 'max f32 nchw 1x1x3x3 k2 s1 d1x-1'],
    [{ 'stride-1': '' }, { 'stride-1': '1' }, 'max f32 nchw 1x1x3x3 k2 s1x'],
  ];
  for (const [wrong, right, line] of cases) {
    await visitor.set(wrong);
    assert.equal(await visitor.refusal(), sentenceOf(line));
    assert.deepEqual([await visitor.grid('y'), await visitor.grid('dx')], before);
    await visitor.set(right);
    assert.equal(await visitor.refusal(), null);
  }
  await visitor.set({ padding: 'explicit' });
  await visitor.fill('pad-0', '500');
  assert.match(await visitor.refusal(), /The output would have 502 rows and 2 columns; this page draws at most 24 of each/);
  await visitor.fill('pad-0', '0');
  // Numbers can still be typed while a setting is wrong, and the picture follows with the last good settings.
  await visitor.set({ 'stride-0': '0' });
  await visitor.cell('x', 0, 0).focus();
  await visitor.page.keyboard.type('50');
  await visitor.page.keyboard.press('Enter');
  assert.equal((await visitor.grid('y'))[0][0], '50');
  assert.notEqual(await visitor.refusal(), null);
});

visit('numbers that the last good settings do not fit are shown all the same', { hash: 'k=3x3&s=1x1&x=1,2,3;4,5,6;7,8,9' }, async (visitor) => {
  await visitor.fill('rows', '2');
  assert.equal(await visitor.refusal(), sentenceOf('max f32 nchw 1x1x2x3 k3 s1'));
  assert.deepEqual(await visitor.grid('x'), shown([[1, 2, 3], [4, 5, 6]]));
  await visitor.fill('kernel-0', '2');
  assert.equal(await visitor.refusal(), null);
  assert.deepEqual(await visitor.grid('y'), shown([[6]]));
});

visit('numbers come back when a size that was typed digit by digit is there', {}, async (visitor) => {
  await visitor.fill('rows', '');
  await visitor.page.type('#rows', '12');
  await visitor.fill('columns', '2');
  assert.deepEqual((await visitor.grid('x')).slice(0, 4), shown([[1, 2], [4, 5], [7, 8], [0, 0]]));
  await visitor.cell('x', 0, 0).dblclick();
  await visitor.page.keyboard.type('9\n');
  await visitor.fill('rows', '3');
  await visitor.fill('columns', '3');
  assert.deepEqual(await visitor.grid('x'), shown([[9, 2, 0], [4, 5, 0], [7, 8, 0]]));
});

visit('a link that takes the cell with the focus away', {}, async (visitor) => {
  await visitor.cell('x', 1, 1).focus();
  await visitor.page.evaluate(() => { location.hash = 'x=1,2;3,4'; });
  await visitor.page.waitForFunction(() => document.querySelectorAll('[data-grid="x"]').length === 4);
  assert.deepEqual(await visitor.grid('y'), shown([[4]]));
});

visit('a link to wrong settings says so and still shows the numbers', { hash: 'k=9x9&s=1x1&x=1,2;3,4&dy=1' }, async (visitor) => {
  assert.equal(await visitor.refusal(), sentenceOf('max f32 nchw 1x1x2x2 k9 s1'));
  assert.deepEqual(await visitor.grid('x'), shown([[1, 2], [3, 4]]));
});

test('a copied link restores the state', async () => {
  const options = { permissions: ['clipboard-read', 'clipboard-write'] };
  const first = await Visitor.open(place, options);
  await first.preset('dilation');
  await first.set({ padding: 'explicit', 'pad-0': '1', 'pad-3': '2', ties: 'last', nan: 'ignore' });
  await first.cell('x', 3, 3).dblclick();
  await first.page.keyboard.type('-2.5');
  await first.page.keyboard.press('Enter');
  await first.cell('dy', 0, 1).dblclick();
  await first.page.keyboard.type('nan');
  await first.page.keyboard.press('Escape');
  await first.cell('dy', 0, 2).click();
  await first.set({ batch: '8', channels: '64' });
  await first.page.click('#tab-numpy');
  await first.page.uncheck('#show-windows');
  await first.press('copy-link', 'Copied');
  const link = await first.page.evaluate(() => navigator.clipboard.readText());
  const second = await Visitor.open(place, { ...options, url: link });
  for (const grid of ['x', 'y', 'dy', 'dx']) assert.deepEqual(await second.grid(grid), await first.grid(grid), grid);
  assert.equal((await second.grid('x'))[3][3], '−2.5');
  await first.page.hover('h1');
  for (const id of ['problem', 'pad-0', 'ties', 'nan', 'batch', 'channels']) {
    assert.equal(await second.page.inputValue(`#${id}`), await first.page.inputValue(`#${id}`), id);
  }
  assert.equal(await second.sum(), await first.sum());
  assert.match(await second.sum(), /^y\[0,2\]/);
  assert.equal(await second.text('code'), await first.text('code'));
  assert.equal(await second.text('memory'), await first.text('memory'));
  // The address bar says the same as the copied link.
  await second.page.waitForTimeout(200);
  assert.equal(second.page.url(), link);
  assert.deepEqual([...first.complaints, ...second.complaints], []);
  await first.close();
  await second.close();
});

visit('the exported SVG parses and stands on its own', {}, async (visitor) => {
  await visitor.preset('overlap');
  const [download] = await Promise.all([visitor.page.waitForEvent('download'), visitor.page.click('#export-svg')]);
  assert.equal(download.suggestedFilename(), 'poolgrad.svg');
  const text = readFileSync(await download.path(), 'utf8');
  const seen = await visitor.page.evaluate((source) => {
    const file = new DOMParser().parseFromString(source, 'image/svg+xml');
    return {
      error: file.querySelector('parsererror')?.textContent ?? null,
      root: file.documentElement.tagName,
      numbers: [...file.querySelectorAll('text')].map((node) => node.textContent),
      styled: file.querySelectorAll('[class], style').length,
    };
  }, text);
  assert.equal(seen.error, null);
  assert.equal(seen.root, 'svg');
  assert.ok(seen.numbers.includes('45'));
  assert.equal(seen.styled, 0);
  assert.ok(!text.includes('var('));
  const size = await visitor.page.evaluate(async (source) => {
    const image = new Image();
    image.src = `data:image/svg+xml;utf8,${encodeURIComponent(source)}`;
    await image.decode();
    return [image.naturalWidth, image.naturalHeight];
  }, text);
  assert.ok(size[0] > 300 && size[1] > 100, `the picture is ${size.join(' by ')}`);
});

visit('the keys reach and edit every cell', {}, async (visitor) => {
  const { page } = visitor;
  const focused = () => page.evaluate(() => {
    const { grid, row, column } = document.activeElement.dataset;
    return `${grid}.${row}.${column}`;
  });
  await page.focus('#show-windows');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'x.0.0');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowDown');
  assert.equal(await focused(), 'x.1.1');
  assert.match(await visitor.sum(), /^dx\[1,1\]/);
  await page.keyboard.press('End');
  assert.equal(await focused(), 'x.1.2');
  await page.keyboard.press('Control+Home');
  assert.equal(await focused(), 'x.0.0');
  await page.keyboard.type('42');
  await page.keyboard.press('Enter');
  assert.equal(await focused(), 'x.1.0');
  assert.equal((await visitor.grid('y'))[0][0], '42');
  await page.keyboard.press('F2');
  await page.keyboard.type('nonsense');
  await page.keyboard.press('Enter');
  assert.equal((await visitor.grid('x'))[1][0], '4');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'y.0.0');
  await page.keyboard.type('7');
  assert.equal((await visitor.grid('y'))[0][0], '42');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'dy.0.0');
  await page.keyboard.type('-inf');
  await page.keyboard.press('Tab');
  assert.equal((await visitor.grid('dx'))[0][0], '−∞');
  await page.waitForFunction(() => document.getElementById('announce').textContent.startsWith('y[0,1]'));
});

visit('dragging paints', {}, async (visitor) => {
  const { page } = visitor;
  await page.click('#paint');
  await page.fill('#brush', '-3');
  const at = async (row, column) => {
    const box = await visitor.cell('x', row, column).boundingBox();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  await page.mouse.move(...(await at(0, 0)));
  await page.mouse.down();
  await page.mouse.move(...(await at(0, 2)), { steps: 12 });
  await page.mouse.move(...(await at(2, 2)), { steps: 12 });
  await page.mouse.up();
  assert.deepEqual(await visitor.grid('x'), [['−3', '−3', '−3'], ['4', '5', '−3'], ['7', '8', '−3']]);
});

visit('random numbers and ones', {}, async (visitor) => {
  await visitor.page.click('#random-x');
  await visitor.page.click('#ones-dy');
  assert.deepEqual(await visitor.grid('dy'), shown([[1, 1], [1, 1]]));
  const total = (await visitor.grid('dx')).flat().reduce((sum, text) => sum + Number(text), 0);
  assert.equal(total, 4);
  await visitor.fill('rows', '5');
  assert.equal((await visitor.grid('x')).length, 5);
  await visitor.fill('rows', '17');
  assert.match(await visitor.refusal(), /17 rows and 3 columns; this page draws 1 to 16/);
});

visit('steps walk forward, then backward, one window at a time', {}, async (visitor) => {
  const { page } = visitor;
  await page.click('#step-start');
  assert.deepEqual((await visitor.grid('y')).flat(), ['·', '·', '·', '·']);
  assert.deepEqual((await visitor.grid('dx')).flat(), Array(9).fill('0'));
  await page.click('#step-next');
  await page.click('#step-next');
  assert.deepEqual((await visitor.grid('y')).flat(), ['5', '6', '·', '·']);
  assert.equal(await visitor.text('step-text'), 'forward, window 2 of 4');
  assert.equal(await page.locator('.route.forward').count(), 1);
  for (let step = 0; step < 5; step += 1) await page.click('#step-next');
  assert.deepEqual((await visitor.grid('dx')).flat(), ['0', '0', '0', '0', '1', '2', '0', '3', '0']);
  assert.equal(await visitor.text('step-text'), 'backward, window 3 of 4');
  await page.click('#step-back');
  assert.equal(await visitor.text('step-text'), 'backward, window 2 of 4');
  await page.click('#step-start');
  // What the text has said is kept, so that nothing passes unseen on a slow machine.
  await page.evaluate(() => {
    const text = document.getElementById('step-text');
    window.said = [];
    new MutationObserver(() => window.said.push(text.textContent)).observe(text, { childList: true, characterData: true, subtree: true });
  });
  await page.click('#step-play');
  await page.waitForFunction(() => window.said.at(-1) === 'all windows, both ways', null, { timeout: 120000 });
  const said = await page.evaluate(() => window.said);
  const all = [...Array(8).keys()].map((i) => `${i < 4 ? 'forward' : 'backward'}, window ${(i % 4) + 1} of 4`);
  assert.deepEqual(said.filter((text, i) => text !== said[i - 1]), [...all, 'all windows, both ways']);
  assert.deepEqual((await visitor.grid('dx')).flat(), ['0', '0', '0', '0', '1', '2', '0', '3', '4']);
});

visit('each line of the derivation lights its part of the picture', {}, async (visitor) => {
  const { page } = visitor;
  assert.equal(await page.locator('#lines .katex').count(), 9);
  const lit = async (line) => {
    await page.focus(`[data-line="${line}"]`);
    return page.evaluate(() => ['.window-lit', '.route.forward', '.route.backward', '.grid-x .lit', '.grid-dx .lit']
      .map((selector) => document.querySelectorAll(selector).length));
  };
  assert.deepEqual(await lit('window'), [1, 1, 0, 4, 0]);
  assert.deepEqual(await lit('winner'), [0, 4, 0, 4, 0]);
  assert.deepEqual(await lit('local'), [1, 1, 1, 4, 1]);
  assert.deepEqual(await lit('message'), [4, 1, 1, 1, 1]);
  assert.deepEqual(await lit('disjoint'), [4, 0, 0, 9, 0]);
  assert.deepEqual(await lit('matrix'), [0, 0, 4, 0, 4]);
  await visitor.rested();
  assert.match(await page.locator('[data-line="message"] .line-here').textContent(), /x₁₁ lies in 4 windows and wins 1, so dx₁₁ = 1/);
  assert.match(await page.locator('[data-line="ties"] .line-here').textContent(), /no window has a tie/);
  // The picture comes along when it is out of sight.
  assert.equal(await page.locator('.picture-host.floating').count(), 1);
  await page.click('[data-line="ties"] button');
  assert.match(await page.locator('[data-line="ties"] .line-here').textContent(), /4 windows with a tie, and each gets an equal share/);
  assert.deepEqual(await lit('ties'), [4, 0, 14, 14, 14]);
});

visit('the Jacobian, the routes and the bytes', {}, async (visitor) => {
  const { page } = visitor;
  assert.match(await page.locator('.jacobian').getAttribute('aria-label'), /4 rows.* by 9 columns.*; 4 of 36 entries are not zero/);
  assert.deepEqual(await page.locator('.route-bits').allTextContents(), ['11', '11', '11', '11']);
  assert.deepEqual(await page.locator('.route-hex').allTextContents(), ['0f', '0f']);
  assert.deepEqual(await page.locator('.kept-bytes').allTextContents(), ['2 bytes', '52 bytes', '68 bytes']);
  await visitor.set({ batch: '32', channels: '64' });
  assert.deepEqual(await page.locator('.kept-bytes').allTextContents(), ['4.1 kB', '106 kB', '139 kB']);
  await visitor.set({ channels: '-1' });
  assert.equal(await visitor.text('memory-refusal'), sentenceOf('max f32 nchw 32x-1x3x3 k2 s1'));
});

test('the programs are on the page and can be copied', async () => {
  const visitor = await Visitor.open(place, { permissions: ['clipboard-read', 'clipboard-write'] });
  const starts = { problem: /^max f32 nchw/, cpp: /^#include/, torch: /^import torch/, numpy: /^import numpy/, tfjs: /^import \* as tf/ };
  for (const [tab, start] of Object.entries(starts)) {
    await visitor.page.click(`#tab-${tab}`);
    assert.match(await visitor.text('code'), start);
    await visitor.press('copy-code', 'Copied');
    assert.equal(await visitor.page.evaluate(() => navigator.clipboard.readText()), await visitor.text('code'));
  }
  await visitor.close();
});

visit('an edit that moves on to the next cell draws once, numbers and light together', {}, async (visitor) => {
  await visitor.preset('large');
  await visitor.cell('x', 7, 7).focus();
  await visitor.page.keyboard.type('99');
  const written = await visitor.page.evaluate(async () => {
    const records = [];
    const observer = new MutationObserver((list) => records.push(...list));
    observer.observe(document.querySelector('.picture'), { subtree: true, attributes: true, attributeFilter: ['class'] });
    document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
    await new Promise((done) => requestAnimationFrame(done));
    window.sheets = [new Set(records.map(({ target }) => target.closest('.sheet'))).size, document.querySelectorAll('.sheet').length];
    return records.map(({ target }) => target.getAttribute('aria-label')).filter((label) => label !== null);
  });
  // A browser goes through every sheet that was written to, so most of the rows must be left alone.
  const [touched, all] = await visitor.page.evaluate(() => window.sheets);
  assert.ok(all > 40 && touched < all / 2, `${touched} of ${all} sheets were written to`);
  assert.ok(written.length > 5, `${written.length} cells changed their looks`);
  assert.deepEqual(written.filter((label, at) => written.indexOf(label) !== at), []);
  assert.equal((await visitor.grid('x'))[7][7], '99');
  assert.match(await visitor.sum(), /^dx\[8,7\] = /);
  assert.ok(await visitor.cell('x', 8, 7).evaluate((cell) => cell === document.activeElement));
});

visit('an edit draws the panels in sight at once, and those out of sight when the hand rests', { viewport: { width: 1280, height: 480 } },
  async (visitor) => {
  const { page } = visitor;
  const edit = async (value) => {
    await visitor.cell('dy', 0, 0).evaluate((cell) => cell.focus({ preventScroll: true }));
    await page.keyboard.type(String(value));
    return page.evaluate(() => {
      document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
      return document.querySelector('[data-line="matrix"] .line-here').textContent;
    });
  };
  const sums = (first) => `Here: dy adds up to ${first + 9}, dx to ${first + 9}.`;
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  assert.equal(await edit(100), sums(1));
  await visitor.rested();
  assert.equal(await page.locator('[data-line="matrix"] .line-here').textContent(), sums(100));
  await page.locator('[data-line="matrix"]').scrollIntoViewIfNeeded();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  assert.equal(await edit(200), sums(200));
});

visit('a problem line can be typed in', {}, async (visitor) => {
  await visitor.fill('problem', 'max f32 nchw 8x64x5x4 k3x2 s2 p1:0x0:1 ceil torch');
  await visitor.page.keyboard.press('Enter');
  assert.equal(await visitor.refusal(), null);
  assert.equal((await visitor.grid('x')).length, 5);
  assert.equal(await visitor.page.inputValue('#dialect'), 'torch');
  assert.equal(await visitor.page.inputValue('#channels'), '64');
  const [rows, columns] = engine.plan('max f32 nchw 8x64x5x4 k3x2 s2 p1:0x0:1 ceil torch').info.outSize;
  assert.deepEqual([(await visitor.grid('y')).length, (await visitor.grid('y'))[0].length], [rows, columns]);
  await visitor.fill('problem', 'max f32 nchw 1x1x5x4 k0');
  await visitor.page.keyboard.press('Enter');
  assert.equal(await visitor.refusal(), sentenceOf('max f32 nchw 1x1x5x4 k0'));
  assert.deepEqual([(await visitor.grid('y')).length, (await visitor.grid('y'))[0].length], [rows, columns]);
});

test('an image of one\'s own is pooled, with its gradient, and travels in the link', async () => {
  const first = await Visitor.open(place, { permissions: ['clipboard-read', 'clipboard-write'] });
  const picture = await first.page.screenshot({ clip: { x: 0, y: 0, width: 600, height: 300 } });
  await first.preset('image');
  await first.page.waitForSelector('.image-figures canvas');
  const sample = await first.page.locator('.heat-legend').innerText();
  await first.page.setInputFiles('#image-file', { name: 'own.png', mimeType: 'image/png', buffer: picture });
  await first.page.waitForFunction((old) => document.querySelector('.heat-legend').textContent !== old, sample);
  const pixels = (visitor) => visitor.page.evaluate(() => [...document.querySelectorAll('.image-figures canvas')]
    .map((canvas) => [canvas.width, canvas.height, canvas.toDataURL()]));
  const shapes = (await pixels(first)).map(([width, height]) => `${width}x${height}`);
  assert.deepEqual(shapes, ['96x48', '24x12', '96x48']);
  await first.page.click('#copy-link');
  const link = await first.page.evaluate(() => navigator.clipboard.readText());
  const second = await Visitor.open(place, { url: link });
  await second.page.waitForFunction(() => document.querySelector('.heat-legend').textContent !== '');
  assert.deepEqual(await pixels(second), await pixels(first));
  // Refused settings keep the last good images.
  await second.set({ 'kernel-0': '400' });
  assert.equal(await second.refusal(), sentenceOf('max f32 nhwc 1x48x96x3 k400x4 s4'));
  assert.deepEqual(await pixels(second), await pixels(first));
  const [download] = await Promise.all([first.page.waitForEvent('download'), first.page.click('#export-svg')]);
  assert.match(readFileSync(await download.path(), 'utf8'), /<image /);
  await first.page.setInputFiles('#image-file', { name: 'not.png', mimeType: 'image/png', buffer: Buffer.from('no image') });
  await first.page.waitForFunction(() => !document.getElementById('refusal').hidden);
  assert.match(await first.refusal(), /could not be read as an image/);
  await first.close();
  await second.close();
});
