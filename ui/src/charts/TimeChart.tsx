// Values over time, drawn by uPlot. Below it stands every line with its value under the pointer, or else its newest.
//
// uPlot is loaded when the first chart is shown: the first page does without it. Unknown is a gap, never zero.

import { useEffect, useRef, useState } from 'react'
import type uPlot from 'uplot'
import { useBox } from '../map/useBox'
import { type Theme, useTheme } from '../page/theme'
import { tickWords } from '../words/times'
import { type ChartData, inMeasure, isKnown, isolated, newest } from './chartData'

const HEIGHT = 150
const AXIS_WIDTH = 58
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [1, 5], [14, 5]] // a line is known by its dashes, too

interface Props {
  title: string
  data: ChartData | null
  problem?: string
}

export function TimeChart({ title, data, problem = '' }: Props) {
  const place = useRef<HTMLDivElement>(null)
  const { width } = useBox(place)
  const [theme] = useTheme()
  const [under, setUnder] = useState<number | null>(null)
  useUplot(place, data, width, theme, setUnder)
  return (
    <figure className="chart">
      <figcaption>{title}</figcaption>
      <div className="chart-place" ref={place} style={{ height: HEIGHT }} aria-hidden="true" />
      {problem && <p className="muted">{problem}</p>}
      {data && !isKnown(data) && !problem && <p className="chart-empty muted">Nothing is known of this time.</p>}
      <ul className="chart-lines">
        {data?.lines.map((line, index) => {
          const value = under === null ? newest(line) : (line.values[under] ?? null)
          return (
            <li key={line.label}>
              <LineSample index={index} />
              {line.label} <strong>{value === null ? 'unknown' : inMeasure(value, line.measure)}</strong>
            </li>
          )
        })}
      </ul>
    </figure>
  )
}

function LineSample({ index }: { index: number }) {
  return (
    <svg className={`line-${index % 6}`} viewBox="0 0 24 8" width="24" height="8" aria-hidden="true">
      <path d="M0 4h24" stroke="currentColor" strokeWidth="2" strokeDasharray={DASHES[index % DASHES.length]?.join(' ')} />
    </svg>
  )
}

/** Keeps one chart in `place`: made anew when its lines or the theme change, else only given its new values. */
function useUplot(
  place: React.RefObject<HTMLDivElement | null>,
  data: ChartData | null,
  width: number,
  theme: Theme,
  onPoint: (index: number | null) => void,
) {
  const chart = useRef<uPlot | null>(null)
  const newestData = useRef(data)
  newestData.current = data
  const look = data ? JSON.stringify([theme, data.lines.map((line) => [line.label, line.measure])]) : ''
  useEffect(() => {
    const element = place.current
    if (!element || !look || !width) return
    let isOver = false
    void import('uplot').then(({ default: UPlot }) => {
      if (isOver || !newestData.current) return
      chart.current = new UPlot(options(element, newestData.current, width, onPoint), columns(newestData.current), element)
    })
    return () => {
      isOver = true
      chart.current?.destroy()
      chart.current = null
    }
  }, [place, look, width, onPoint])
  useEffect(() => {
    if (data) chart.current?.setData(columns(data))
  }, [data])
}

const columns = (data: ChartData) => [data.times, ...data.lines.map((line) => line.values)] as uPlot.AlignedData

function options(element: HTMLElement, data: ChartData, width: number, onPoint: (index: number | null) => void): uPlot.Options {
  const style = getComputedStyle(element)
  const colour = (name: string) => resolved(element, name)
  const measure = data.lines[0]?.measure ?? ''
  const font = `11px ${style.fontFamily}`
  const axis = { stroke: colour('--muted'), font, grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } }
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.08 : 1] } },
    axes: [
      { ...axis, values: (_, ticks, __, ___, step_s) => ticks.map((tick) => tickWords(tick, step_s)) },
      { ...axis, size: AXIS_WIDTH, values: (_, ticks) => ticks.map((tick) => inMeasure(tick, measure)) },
    ],
    series: [
      {},
      ...data.lines.map((line, index) => ({
        label: line.label,
        stroke: colour(`--name-${index % 6}`),
        width: 2,
        dash: DASHES[index % DASHES.length] ?? [],
        spanGaps: false,
        points: { show: true, size: 5, filter: (self: uPlot, at: number) => isolated(self.data[at] as (number | null)[]) },
      })),
    ],
    hooks: { setCursor: [(self) => onPoint(self.cursor.idx ?? null)] },
  }
}

/** A colour of the theme as a canvas takes it. */
function resolved(element: HTMLElement, name: string): string {
  const probe = element.appendChild(document.createElement('span'))
  probe.style.color = `var(${name})`
  const colour = getComputedStyle(probe).color
  probe.remove()
  return colour
}
