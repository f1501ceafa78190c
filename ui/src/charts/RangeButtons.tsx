// Choose how far back charts look.

import { RANGES } from './useSeries'

export function RangeButtons({ last_s, onChoose }: { last_s: number; onChoose: (last_s: number) => void }) {
  return (
    <div className="range-buttons" role="group" aria-label="How far back">
      {RANGES.map((range) => (
        <button key={range.last_s} type="button" aria-pressed={range.last_s === last_s} onClick={() => onChoose(range.last_s)}>
          {range.title}
        </button>
      ))}
    </div>
  )
}
