// Amounts in words: integers as the API gives them, as people say them.

const upTo = (digits: number) => new Intl.NumberFormat('en-US', { maximumFractionDigits: digits })
const WHOLE = upTo(0)
const TENTHS = upTo(1)
const HUNDREDTHS = upTo(2)
const THOUSANDTHS = upTo(3)

export const count = (value: number) => WHOLE.format(value)

/** "1 node", "3 nodes". */
export const counted = (value: number, one: string, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`

/** 3500 -> "3.5", 66003 -> "66.003": exact, since people compare two of them. */
export const gpuNumber = (milli: number) => THOUSANDTHS.format(milli / 1000)

/** 3500 -> "3.5 GPUs", 500 -> "0.5 GPU". */
export const gpus = (milli: number) => ofMilli(milli, 'GPU')

/** 1500 -> "1.5 CPUs". */
export const cpus = (milli: number) => ofMilli(milli, 'CPU')

/** 196608 -> "192 GiB". */
export function memory(mib: number): string {
  if (mib >= 1024 * 1024) return `${TENTHS.format(mib / 1024 / 1024)} TiB`
  if (mib >= 1024) return `${TENTHS.format(mib / 1024)} GiB`
  return `${WHOLE.format(mib)} MiB`
}

/** "96 of 192 GiB": the unit once, when both have the same. */
export function ofMemory(used: number, total: number): string {
  const [amount, unit] = memory(used).split(' ')
  return unit === memory(total).split(' ')[1] || used === 0 ? `${amount} of ${memory(total)}` : `${memory(used)} of ${memory(total)}`
}

export const percent = (part: number, whole: number) => `${whole > 0 ? Math.round((100 * part) / whole) : 0} %`

/** What an obstacle's `need` and `have` count: as exact as its sentence, so that two that differ never read the same.
 * `other`: the one of the two that it is compared with. */
export function inUnit(value: number, unit: string, other = value): string {
  switch (unit) {
    case 'milli-gpu':
      return gpus(value)
    case 'gpus':
      return counted(value, 'GPU')
    case 'milli-cpu':
      return cpus(value)
    case 'mib':
      return exactMemory(value, other)
    case 'pods':
      return counted(value, 'pod')
    case 'nodes':
      return counted(value, 'node')
    case 's':
      return `${count(value)} s`
    default:
      return unit ? `${count(value)} ${unit}` : count(value)
  }
}

const ofMilli = (milli: number, one: string) =>
  `${THOUSANDTHS.format(milli / 1000)} ${milli > 0 && milli <= 1000 ? one : `${one}s`}`

/** The largest unit in which both need at most one decimal place; the same rule as kaiwo/model/amounts.py. */
function exactMemory(mib: number, other: number): string {
  for (const [size, name] of [
    [1024 * 1024, 'TiB'],
    [1024, 'GiB'],
  ] as const) {
    const isExact = (mib * 10) % size === 0 && (other * 10) % size === 0
    if (Math.max(mib, other) >= size && isExact) return `${TENTHS.format(mib / size)} ${name}`
  }
  return `${WHOLE.format(mib)} MiB`
}

export function milliseconds(ms: number): string {
  if (ms >= 1000) return `${HUNDREDTHS.format(ms / 1000)} s`
  return `${(ms >= 100 ? WHOLE : ms >= 1 ? TENTHS : HUNDREDTHS).format(ms)} ms`
}
