// What happened to a workload, from its submission to its end.

import type { HistoryView, MomentView } from '../api/views'
import { useNow } from '../live/clock'
import { clock, span } from '../words/times'
import { asSentence } from '../words/work'

export function Timeline({ past }: { past: HistoryView }) {
  const now_s = useNow()
  return (
    <section aria-labelledby="timeline-title">
      <h3 id="timeline-title">Timeline</h3>
      <ol className="timeline">
        {past.timeline.map((moment, index) => (
          <li key={index} className={moment.kind}>
            <p>{asSentence(moment.sentence)}</p>
            <p className="muted">
              <time dateTime={new Date(moment.at_s * 1000).toISOString()}>{clock(moment.at_s)}</time>
              {lasted(moment, now_s)}
            </p>
          </li>
        ))}
      </ol>
    </section>
  )
}

function lasted(moment: MomentView, now_s: number): string {
  if (!moment.is_over) return `, for ${span(now_s - moment.at_s)} until now`
  return moment.until_s ? `, for ${span(moment.until_s - moment.at_s)}` : ''
}
