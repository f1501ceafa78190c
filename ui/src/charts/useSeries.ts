// Ask for time series now, and again as often as a new point can be there.

import { useEffect, useMemo, useState } from 'react'
import { ApiError, getJson } from '../api/client'
import type { SeriesView } from '../api/views'
import { repeat } from '../live/repeat'
import { type ChartData, NOTHING, chartData } from './chartData'

const SAMPLE_MS = 10_000
const POINTS = 240

/** One measure of some subjects. Labels are the subjects' names unless `label` is given. */
export interface Wanted {
  kind: string
  measure: string
  names?: readonly string[]
  label?: string
}

export interface Range {
  title: string
  last_s: number
}

export const RANGES: readonly Range[] = [
  { title: '2 hours', last_s: 7_200 },
  { title: 'day', last_s: 86_400 },
  { title: 'week', last_s: 604_800 },
  { title: 'month', last_s: 2_592_000 },
]

export interface SeriesAnswer {
  data: ChartData | null // null: not known yet
  problem: string
}

export function useSeries(wanted: readonly Wanted[], last_s: number): SeriesAnswer {
  const key = JSON.stringify([wanted, last_s])
  const [answer, setAnswer] = useState<SeriesAnswer & { key: string }>({ key, data: null, problem: '' })
  useEffect(() => {
    const [asked, range_s] = JSON.parse(key) as [Wanted[], number]
    if (!asked.length) return
    return repeat(Math.max(SAMPLE_MS, (range_s * 1000) / POINTS), async (signal) => {
      try {
        const views = await Promise.all(asked.map((each) => getJson<SeriesView>(path(each, range_s), signal)))
        setAnswer({ key, data: chartData(views, labelsOf(asked)), problem: '' })
      } catch (error) {
        if (signal.aborted) return
        const isNew = error instanceof ApiError && error.status === 404 // nothing was recorded of it yet
        const problem = isNew ? '' : error instanceof Error ? error.message : String(error)
        setAnswer((before) => ({ key, data: isNew ? NOTHING : before.key === key ? before.data : null, problem }))
      }
    })
  }, [key])
  return useMemo(() => (answer.key === key ? answer : { data: null, problem: '' }), [answer, key])
}

function path({ kind, measure, names }: Wanted, last_s: number): string {
  const fields = new URLSearchParams({ kind, measure, last: String(last_s), points: String(POINTS) })
  for (const name of names ?? []) fields.append('name', name)
  return `/series?${fields.toString()}`
}

function labelsOf(wanted: readonly Wanted[]): string[] {
  return wanted.flatMap((each) => (each.label === undefined ? (each.names ?? [each.kind]) : [each.label]))
}
