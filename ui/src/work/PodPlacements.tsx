// The placed pods, and the devices that each of them holds.

import { useState } from 'react'
import type { PodView } from '../api/views'
import { useNow } from '../live/clock'
import { counted } from '../words/amounts'
import { span } from '../words/times'
import { PHASES, deviceWords } from '../words/work'

const FIRST = 10 // a large gang is shown in part, so that the facts below stay in reach

export function PodPlacements({ pods }: { pods: PodView[] }) {
  const [isWhole, setWhole] = useState(false)
  const now_s = useNow()
  if (!pods.length) return null
  const shown = isWhole ? pods : pods.slice(0, FIRST)
  return (
    <section aria-labelledby="placed-title">
      <div className="section-head">
        <h3 id="placed-title">{counted(pods.length, 'placed pod')}</h3>
        <button type="button" className="to-map" onClick={() => document.querySelector('.map-frame')?.scrollIntoView({ block: 'center' })}>
          Show on the map
        </button>
      </div>
      <ul className="pods">
        {shown.map((pod) => (
          <li key={pod.name}>
            <strong>{pod.name}</strong> on {pod.node}
            <span className="muted">
              {' '}
              {PHASES[pod.phase]}
              {pod.since_s > 0 && ` for ${span(now_s - pod.since_s)}`}
            </span>
            {pod.devices.length > 0 && <span className="devices">{pod.devices.map(deviceWords).join(', ')}</span>}
          </li>
        ))}
      </ul>
      {pods.length > FIRST && (
        <button type="button" onClick={() => setWhole(!isWhole)}>
          {isWhole ? `Show the first ${FIRST}` : `Show all ${pods.length}`}
        </button>
      )}
    </section>
  )
}
