// Ages and clocks in words.

const MINUTE = 60
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** 840 -> "14 min". Two units only where the second one matters. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds))
  if (s < MINUTE) return `${s} s`
  if (s < HOUR) return `${Math.floor(s / MINUTE)} min`
  if (s < DAY) return twoUnits(s, HOUR, 'h', MINUTE, 'min')
  return twoUnits(s, DAY, 'd', HOUR, 'h')
}

function twoUnits(s: number, large: number, largeName: string, small: number, smallName: string): string {
  const rest = Math.floor((s % large) / small)
  const first = `${Math.floor(s / large)} ${largeName}`
  return rest && s < 10 * large ? `${first} ${rest} ${smallName}` : first
}

/** The cluster's clock. A simulated cluster may count from zero: then there is no date to show. */
export function clock(now_s: number): string {
  if (now_s < 365 * DAY) return `day ${Math.floor(now_s / DAY) + 1}, ${timeOfDay(now_s)}`
  const when = new Date(now_s * 1000)
  return CLOCK.format(when)
}

const CLOCK = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
})

/** A tick of a time axis whose ticks are `step_s` apart: a day, or a time of the day. */
export function tickWords(tick_s: number, step_s: number): string {
  const isVirtual = tick_s < 365 * DAY
  if (step_s >= DAY) return isVirtual ? `day ${Math.floor(tick_s / DAY) + 1}` : DATE.format(new Date(tick_s * 1000))
  if (isVirtual) return timeOfDay(tick_s).slice(0, 5)
  const time = TIME.format(new Date(tick_s * 1000))
  return time === '00:00' ? DATE.format(new Date(tick_s * 1000)) : time
}

const DATE = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' })
const TIME = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' })

function timeOfDay(s: number): string {
  return [(s % DAY) / HOUR, (s % HOUR) / MINUTE, s % MINUTE].map((part) => String(Math.floor(part)).padStart(2, '0')).join(':')
}
