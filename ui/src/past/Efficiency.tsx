// What a workload used of the GPUs that it held. What nobody measured is unknown, and never drawn as zero.

import type { HistoryView } from '../api/views'
import { memory } from '../words/amounts'
import { span } from '../words/times'
import { gpuHours } from '../words/gpuHours'

export function Efficiency({ past }: { past: HistoryView }) {
  const use = past.efficiency
  if (!use.held_gpu_milli_s && !use.peak_memory_mib) return null
  const unknown = use.held_gpu_milli_s ? 'unknown' : ''
  const rows: [string, string][] = [
    ['Waited', span(use.waited_s)],
    ['Ran', span(use.ran_s)],
    ['Asked', gpuHours(use.held_gpu_milli_s)],
    ['Used', use.used_gpu_milli_s == null ? unknown : `${gpuHours(use.used_gpu_milli_s)} (${use.used_percent} %)`],
    ['Wasted', use.wasted_gpu_milli_s == null ? unknown : gpuHours(use.wasted_gpu_milli_s)],
    ['Not measured', use.used_gpu_milli_s == null ? '' : gpuHours(use.held_gpu_milli_s - use.measured_gpu_milli_s)],
    ['Not saved', use.lost_gpu_s >= 36 ? `${gpuHours(use.lost_gpu_s * 1000)} when it was stopped` : ''],
    ['Peak memory', peak(use.peak_memory_mib, use.asked_memory_mib)],
  ]
  return (
    <section aria-labelledby="efficiency-title">
      <h3 id="efficiency-title">Efficiency</h3>
      {use.used_gpu_milli_s != null && <Bar past={past} />}
      <dl className="facts">
        {rows
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
      {past.unknown.map((sentence) => (
        <p key={sentence} className="muted">
          {sentence}
        </p>
      ))}
    </section>
  )
}

function Bar({ past }: { past: HistoryView }) {
  const { held_gpu_milli_s: held, used_gpu_milli_s: used, wasted_gpu_milli_s: wasted } = past.efficiency
  const part = (value: number | null) => ({ width: `${(100 * (value ?? 0)) / Math.max(1, held)}%` })
  return (
    <div className="use-bar" aria-hidden="true">
      <span className="used" style={part(used)} />
      <span className="wasted" style={part(wasted)} />
    </div>
  )
}

function peak(most: number | null, asked: number): string {
  if (!most) return ''
  return asked ? `${memory(most)} of ${memory(asked)} asked for` : memory(most)
}
