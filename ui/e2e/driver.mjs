// Drives one Chromium for the tests in tests/browser.
//
// In: one JSON line an order on stdin, {"do": NAME, ...}. Out: one JSON line an answer, {"ok": VALUE} or {"error": TEXT}.
// Waits are for a condition; an order that is not met in time answers with what the page shows instead.

import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'
import { FLAGS } from './chromium_flags.mjs'

const browser = await chromium.launch({ executablePath: process.argv[2], args: FLAGS })
let context
let page
let seen = { errors: [], hosts: [] }

/** A new window with an empty profile, which writes down what must not happen. */
async function open({ url, width = 1440, height = 900, scheme = 'light' }) {
  await context?.close()
  context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme })
  context.setDefaultTimeout(10_000)
  seen = { errors: [], hosts: [] }
  await openBeside({ url })
}

/** One more window of the same browser; from now on the orders are for this one. */
async function openBeside({ url }) {
  page = await context.newPage()
  const own = new URL(url).host
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && seen.errors.push(`${message.text()} ${message.location().url}`))
  page.on('pageerror', (error) => seen.errors.push(String(error)))
  page.on('request', (request) => {
    const { host, protocol } = new URL(request.url())
    if (host !== own && protocol !== 'data:') seen.hosts.push(host)
  })
  await page.goto(url)
}

/** Asked from outside again and again: the page's security policy lets nothing evaluate text inside it. */
async function until({ script, timeout_ms }) {
  const end = Date.now() + timeout_ms
  while (!(await page.evaluate(script))) {
    if (Date.now() > end) throw new Error(`not within ${timeout_ms} ms`)
    await page.waitForTimeout(50)
  }
}

const orders = {
  open,
  openBeside,
  front: async ({ index }) => {
    page = context.pages()[index]
    await page.bringToFront()
  },
  closeWindow: () => page.close(),
  goto: ({ url }) => page.goto(url).then(() => null),
  reload: () => page.reload().then(() => null),
  see: ({ selector, text, timeout_ms }) => locate(selector, text).waitFor({ timeout: timeout_ms }),
  miss: ({ selector, text, timeout_ms }) => locate(selector, text).waitFor({ state: 'hidden', timeout: timeout_ms }),
  click: ({ selector, text }) => locate(selector, text).click(),
  fill: ({ selector, value }) => page.locator(selector).fill(value),
  choose: ({ selector, value }) => page.locator(selector).selectOption(value),
  press: ({ key }) => page.keyboard.press(key),
  text: ({ selector }) => page.locator(selector).first().innerText(),
  count: ({ selector }) => page.locator(selector).count(),
  evaluate: ({ script }) => page.evaluate(script),
  until,
  scheme: ({ value }) => page.emulateMedia({ colorScheme: value }),
  resize: ({ width, height }) => page.setViewportSize({ width, height }),
  screenshot: ({ path, full = false }) => page.screenshot({ path, fullPage: full }).then(() => null),
  seen: () => seen,
}

const locate = (selector, text) => page.locator(selector, text === undefined ? {} : { hasText: text }).first()

for await (const line of createInterface({ input: process.stdin })) {
  const { do: order, ...details } = JSON.parse(line)
  let answer
  try {
    answer = { ok: (await orders[order](details)) ?? null }
  } catch (error) {
    const shown = await page?.locator('body').innerText().catch(() => '')
    answer = { error: `${error.message}\nThe page shows:\n${(shown ?? '').slice(0, 3000)}` }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
await browser.close()
