// GPU-hours in words: two decimal places, or four where there are few; the same rule as `kaiwo history`.

const MANY_MILLI_S = 360_000

/** 3600000 thousandths of a GPU times seconds -> "1 GPU-hour". */
export function gpuHours(milli_s: number): string {
  const digits = milli_s >= MANY_MILLI_S ? 2 : 4
  const hours = new Intl.NumberFormat('en-US', { maximumFractionDigits: digits }).format(milli_s / 3_600_000)
  return `${hours} GPU-${hours === '1' ? 'hour' : 'hours'}`
}
