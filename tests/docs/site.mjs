// The built site as readers have it, in headless Chromium: make test-site. From a server's sub-path and from
// the file system, light and dark, on a phone, searched; docs/mend_furo.py, docs/static and docs/search_scorer.js are there for these.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { serve } from '../../explorer/serve.mjs';

const require = createRequire(new URL('../../explorer/', import.meta.url));
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const dist = fileURLToPath(new URL('../../dist', import.meta.url));
const places = { file: pathToFileURL(`${dist}/site/`).href };
const pages = ['index.html', 'benchmarks.html', 'api/c.html', 'api/python.html', 'api/javascript/poolgrad.html', 'guides/dialects.html'];
let server, browser;
before(async () => {
  server = await serve(dist);
  places['sub-path'] = `${server.address}site/`;
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
});
after(() => browser.close().then(server.stop));

/** Opens the address, hands the page to the body, and fails on anything that was missing or went wrong in it. */
async function visit(address, options, body) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('requestfailed', (request) => complaints.push(`${request.url()}: ${request.failure().errorText}`));
  page.on('response', (response) => { if (response.status() >= 400) complaints.push(`${response.url()}: ${response.status()}`); });
  await page.goto(address);
  await body(page);
  await context.close();
  assert.deepEqual(complaints, [], address);
}

/** 0, black, to 1, white, behind the text. */
const brightness = (page) => page.evaluate(() =>
  getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).slice(0, 3).reduce((sum, part) => sum + part / 765, 0));

/** In the page: what axe-core finds. Its results name thousands of elements that pass, which would take long to come here. */
async function lookAt(rules) {
  const { violations, passes } = await window.axe.run({ resultTypes: ['violations'], ...rules });
  const serious = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
  return { serious: serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' | ')}`), passed: passes.length };
}

describe('the site', { concurrency: 2 }, () => {
  for (const kind of ['file', 'sub-path']) {
    test(`search finds the page of a word before whatever else has it (${kind})`, async () => {
      for (const [words, page] of [['routes', 'routes.html'], ['determinism', 'guides/determinism.html'], ['poolgrad_plan_create', 'api/c.html#']]) {
        await visit(`${places[kind]}search.html?q=${words}`, {}, async (opened) => {
          const results = opened.locator('ul.search li a');
          await opened.waitForFunction(() => /finished|results/i.test(document.querySelector('#search-results h2 ~ p, #search-results .search-summary')?.textContent ?? ''));
          const first = (await results.evaluateAll((links) => links.map((link) => link.getAttribute('href')))).slice(0, 3);
          assert.ok(first[0].startsWith(page), `${words}: first come ${first}`);
          await results.first().click();
          await opened.waitForURL((url) => !url.href.includes('search.html'));
        });
      }
    });

    test(`the colours are the system's until the reader says otherwise, and then stay (${kind})`, async () => {
      for (const colorScheme of ['light', 'dark']) {
        await visit(`${places[kind]}index.html`, { colorScheme }, async (page) => {
          const dark = colorScheme === 'dark';
          assert.equal(await brightness(page) < 0.5, dark);
          const turned = async () => (await brightness(page) < 0.5) !== dark;
          for (let press = 0; press < 3 && !await turned(); press += 1) await page.locator('.theme-toggle:visible').first().click();
          assert.ok(await turned(), 'the switch does nothing');
          assert.equal(await page.locator('.content img[src*="explorer"]:visible').getAttribute('src'), `_images/explorer${dark ? '' : '-dark'}.png`);
          await page.goto(`${places[kind]}guides/memory.html`);
          assert.ok(await turned(), 'the next page has forgotten it');
        });
      }
    });

    test(`the explorer is in it (${kind})`, () => visit(`${places[kind]}index.html`, {}, async (page) => {
      await page.locator('a[href$="explorer/index.html"]:visible').first().click();
      await page.waitForFunction(() => performance.getEntriesByName('first-result').length > 0);
      assert.equal(await page.locator('.grid-y').count() > 0, true);
    }));
  }

  // Without light only colours are others.
  for (const [colorScheme, rules, atLeast] of [['light', {}, 11], ['dark', { runOnly: ['color-contrast'] }, 1]]) {
    test(`axe-core finds nothing serious (${colorScheme})`, async () => {
      for (const name of [...pages, 'start/python.html']) {
        await visit(places['sub-path'] + name, { colorScheme }, async (page) => {
          await page.evaluate(axe);
          const { serious, passed } = await page.evaluate(lookAt, rules);
          assert.deepEqual(serious, [], name);
          assert.ok(passed >= atLeast, 'axe looked at the page');
        });
      }
    });
  }

  test('no page is wider than a phone, and its menu opens', async () => {
    for (const name of pages) {
      await visit(places.file + name, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }, async (page) => {
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 390, `${name} is wider`);
        await page.locator('.nav-overlay-icon').tap();
        await page.waitForFunction(() => document.querySelector('.sidebar-drawer').getBoundingClientRect().left >= 0);
      });
    }
  });
});
