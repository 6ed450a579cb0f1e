// A headless Chromium for the tests, with a profile of its own that goes with it.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { chromium } from 'playwright-core';

/** Opens `url`, waits until the page has set window.outcome, and returns it. Anything the page complains about is an error. */
export async function outcomeOf(url, { timeout = 120000 } = {}) {
  const profile = mkdtempSync(path.join(tmpdir(), 'poolgrad-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
           '--disable-component-update', '--disable-sync'],
  });
  try {
    const page = await context.newPage();
    const complaints = [];
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
    await page.goto(url);
    await page.waitForFunction('window.outcome !== undefined', undefined, { timeout }).catch((error) => {
      throw new Error(`${error.message}\n${complaints.join('\n')}`);
    });
    return { outcome: await page.evaluate('window.outcome'), complaints, text: await page.locator('body').innerText() };
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
}
