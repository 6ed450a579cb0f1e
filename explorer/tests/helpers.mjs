// What the tests share: a browser on the built page, the library itself (run here in Node, as the judge of what the page
// shows), and ways to read and work the page as a visitor does.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { bundle } from '../build.mjs';
import { serve } from '../serve.mjs';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

export const PAGE_FILE = here('../dist/index.html');
export const IMAGES = here('../../docs/images/');

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

/** One of the page's TypeScript modules, run in Node. */
export async function loadModule(path) {
  const { script } = await bundle(path, { platform: 'node' });
  return import(`data:text/javascript;base64,${Buffer.from(script).toString('base64')}`);
}

/** The library, from the same module file that the page carries. */
export async function startLibrary() {
  const { engineFromModule } = await loadModule('../bindings/js/src/load.ts');
  return engineFromModule(new WebAssembly.Module(readFileSync(here('../../bindings/js/dist/poolgrad.wasm'))));
}

export async function startBrowser() {
  const server = await serve(here('../dist'));
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  return { browser, address: server.address, stop: () => browser.close().then(server.stop) };
}

export class Visitor {
  /** Everything the page asked the network for, and what it complained about. */
  requests = [];
  complaints = [];

  static async open({ browser, address }, { hash = '', url = null, ...options } = {}) {
    const context = await browser.newContext({
      viewport: { width: 1280, height: 900 }, colorScheme: 'light', acceptDownloads: true, ...options,
    });
    const visitor = new Visitor();
    visitor.context = context;
    visitor.page = await context.newPage();
    visitor.page.on('request', (request) => visitor.requests.push(request.url()));
    visitor.page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) visitor.complaints.push(message.text());
    });
    visitor.page.on('pageerror', (error) => visitor.complaints.push(String(error)));
    await visitor.page.goto(url ?? address + (hash && `#${hash}`));
    await visitor.page.waitForFunction(() => performance.getEntriesByName('first-result').length > 0);
    return visitor;
  }

  close() {
    return this.context.close();
  }

  cell(grid, row, column) {
    return this.page.locator(`[data-grid="${grid}"][data-row="${row}"][data-column="${column}"]`);
  }

  /** The numbers of a grid as they stand in the picture, row by row. */
  grid(name) {
    return this.page.evaluate((grid) => {
      const rows = [];
      for (const cell of document.querySelectorAll(`[data-grid="${grid}"]`)) {
        (rows[Number(cell.dataset.row)] ??= []).push(cell.querySelector('.cell-text').textContent);
      }
      return rows;
    }, name);
  }

  preset(id) {
    return this.page.click(`[data-preset="${id}"]`);
  }

  /** The formula of what is lit, as the plain line that screen readers get. */
  sum() {
    return this.page.evaluate(() => document.getElementById('formula').dataset.plain);
  }

  /** Panels that are out of sight catch up when the hand rests. */
  rested() {
    return this.page.waitForFunction(() => !document.querySelector('[aria-busy]'));
  }

  async text(id) {
    await this.rested();
    return this.page.evaluate((name) => document.getElementById(name).textContent, id);
  }

  /** Presses a button and waits until it has said that word, however briefly. */
  async press(id, word) {
    await this.page.evaluate(([name, wanted]) => {
      const button = document.getElementById(name);
      button.textContent = '';
      window.said = new Promise((done) => {
        new MutationObserver(() => button.textContent === wanted && done()).observe(button, { childList: true });
      });
    }, [id, word]);
    await this.page.click(`#${id}`);
    await this.page.evaluate(() => window.said);
  }

  refusal() {
    return this.page.evaluate(() => {
      const box = document.getElementById('refusal');
      return box.hidden ? null : box.textContent;
    });
  }

  async fill(id, value) {
    await this.page.fill(`#${id}`, value);
  }

  async set(changes) {
    for (const [id, value] of Object.entries(changes)) {
      const tag = await this.page.evaluate((name) => document.getElementById(name).tagName, id);
      if (tag === 'SELECT') await this.page.selectOption(`#${id}`, value);
      else await this.fill(id, value);
    }
  }
}

/** Numbers as the picture writes whole ones. */
export function shown(rows) {
  return rows.map((row) => row.map((value) => String(value)));
}
