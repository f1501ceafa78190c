// Measures the web page in a real Chromium for bench/page.py: how soon it is useful, what it costs, and how smooth it stays.
//
// In: the browser, a login address, and how many seconds to watch; each line of stdin is the name of a workload that was
// just submitted, and when. Out: one line when the page is watched, then one JSON object. An event that was never shown
// makes the figure null.

import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'
import { FLAGS } from './chromium_flags.mjs'

const [, , executablePath, login, seconds] = process.argv
const LONG_MS = 100
const STEPS = 60 // moves of the hand over the map

const browser = await chromium.launch({ executablePath, args: FLAGS })
const context = await browser.newContext({ viewport: { width: 1440, height: 900 } })

// Log in first: what is measured is a visit, not the exchange of a code.
const first = await context.newPage()
await first.goto(login)
await first.waitForSelector('.work-table tr')
const storage = await first.evaluate(() => JSON.stringify({ ...localStorage }))
const session = await first.evaluate(() => JSON.stringify({ ...sessionStorage }))
const address = first.url()
await first.close()

const page = await context.newPage()
await page.addInitScript(
  ([local, own]) => {
    for (const [name, value] of Object.entries(JSON.parse(local))) localStorage.setItem(name, value)
    for (const [name, value] of Object.entries(JSON.parse(own))) sessionStorage.setItem(name, value)
    window.seen = { useful: 0, shown: {}, long: [] }
    const look = () => {
      if (!window.seen.useful && document.querySelector('.work-table tbody tr') && document.querySelector('.map canvas')) {
        requestAnimationFrame(() => setTimeout(() => (window.seen.useful ||= performance.now()))) // after the frame
      }
      for (const link of document.querySelectorAll('.work-table button.link')) {
        const name = link.textContent
        if (name in window.seen.shown) continue
        window.seen.shown[name] = 0
        requestAnimationFrame(() => setTimeout(() => (window.seen.shown[name] = Date.now())))
      }
    }
    new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true })
    new PerformanceObserver((list) => {
      for (const each of list.getEntries()) window.seen.long.push(Math.round(each.duration))
    }).observe({ type: 'longtask' })
  },
  [storage, session],
)
const devtools = await context.newCDPSession(page)
await devtools.send('Network.enable')
let received = 0
devtools.on('Network.dataReceived', (event) => (received += event.encodedDataLength))
devtools.on('Network.responseReceived', (event) => (received += event.response.encodedDataLength))

const heap = async () => {
  await devtools.send('HeapProfiler.collectGarbage')
  return (await devtools.send('Runtime.getHeapUsage')).usedSize
}
const pause = (ms) => new Promise((done) => setTimeout(done, ms))

await page.goto(address)
await page.waitForFunction(() => window.seen.useful > 0, undefined, { timeout: 60_000 })
await pause(1000) // the rest of the first answers
const initial = received
const longAtStart = await page.evaluate(() => window.seen.long.splice(0))
const heapBefore = await heap()
await pause(500)
await page.evaluate(() => window.seen.long.splice(0)) // the garbage collection of this measurement

console.log(JSON.stringify({ ready: true }))
const submitted = []
createInterface({ input: process.stdin }).on('line', (line) => submitted.push(JSON.parse(line)))

const [receivedBefore, began] = [received, Date.now()]
await pause(1000 * Number(seconds))
const steady = (received - receivedBefore) / ((Date.now() - began) / 1000)
const longInPeace = await page.evaluate(() => window.seen.long.splice(0))
const counted = submitted.splice(0).filter(({ at }) => at < Date.now() - 2000) // the last ones may still be on their way
const shown = await page.evaluate(() => window.seen.shown)
const heapAfter = await heap()
await page.evaluate(() => window.seen.long.splice(0))

const map = await page.locator('.map canvas').boundingBox()
for (let step = 0; step < STEPS; step++) {
  await page.mouse.move(map.x + ((step * 37) % map.width), map.y + ((step * 23) % map.height))
  await page.mouse.wheel(0, step % 20 < 10 ? 120 : -120)
  if (step % 10 === 5) await page.click(`[aria-label='${step % 20 < 10 ? 'Zoom in' : 'Zoom out'}']`)
  await pause(50)
}
const longInMotion = await page.evaluate(() => window.seen.long.splice(0))

const late = counted.map(({ name, at }) => (shown[name] ? shown[name] - at : Infinity)).sort((a, b) => a - b)
const quantile = (part) => late[Math.min(late.length - 1, Math.floor(part * late.length))]
console.log(
  JSON.stringify({
    useful_ms: Math.round(await page.evaluate(() => window.seen.useful)),
    initial_kb: Math.round(initial / 1000),
    steady_kb_per_s: Math.round(steady / 100) / 10,
    events: late.length,
    event_to_pixel_p50_ms: quantile(0.5),
    event_to_pixel_p95_ms: quantile(0.95),
    long_tasks_at_start_ms: longAtStart.filter((ms) => ms > LONG_MS),
    long_tasks_in_peace_ms: longInPeace.filter((ms) => ms > LONG_MS),
    long_tasks_in_motion_ms: longInMotion.filter((ms) => ms > LONG_MS),
    heap_before_mb: Math.round(heapBefore / 100_000) / 10,
    heap_after_mb: Math.round(heapAfter / 100_000) / 10,
  }),
)
await browser.close()
process.exit(0)
