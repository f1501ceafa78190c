// A workload's facts as a list of names and values. What is not set is not shown.

import type { ReactNode } from 'react'
import type { WorkloadDetail } from '../api/views'
import { useNow } from '../live/clock'
import { span } from '../words/times'
import { commandWords, isOver, ran, shortName } from '../words/work'

export function Facts({ detail }: { detail: WorkloadDetail }) {
  const now_s = useNow()
  const work = detail.summary
  const labels = Object.entries(work.labels).map(([key, value]) => `${key}=${value}`)
  const rows: [string, ReactNode][] = [
    ['Queue', work.queue],
    ['User', work.user],
    ['Type', work.kind],
    ['Priority', detail.asked_priority == null ? String(work.priority) : `${work.priority} (asks for ${detail.asked_priority})`],
    ['Requests', detail.requests.join('; ')],
    ['Pods', `${work.pods.used} of ${work.pods.total} placed`],
    ['Submitted', `${span(now_s - work.submitted_s)} ago`],
    ['Ran', work.started_s ? ran(work, now_s) : ''],
    ['Ended', work.ended_s ? `${span(now_s - work.ended_s)} ago` : ''],
    ['Exit code', isOver(work.state) && work.started_s ? String(detail.exit_code) : ''],
    ['Starts', work.attempt > 1 ? String(work.attempt) : ''],
    ['Time limit', detail.time_limit_s ? span(detail.time_limit_s) : ''],
    ['Estimate', detail.estimate_s ? span(detail.estimate_s) : ''],
    ['Preemption delay', detail.preemption_delay_s ? `waits ${span(detail.preemption_delay_s)} before it may preempt others` : ''],
    ['Last checkpoint', detail.checkpoint_s ? `${span(Math.max(0, now_s - detail.checkpoint_s))} ago` : ''],
    ['Restart cost', detail.restart_s ? span(detail.restart_s) : ''],
    ['Earlier runs', detail.learned_s ? `up to ${span(detail.learned_s)}` : ''],
    ['Retries', detail.retries ? String(detail.retries) : ''],
    ['Preemptible', detail.preemptible ? 'yes' : 'no'],
    ['After', detail.after.map(shortName).join(', ')],
    ['Image', detail.image],
    ['Command', detail.command.length ? <code key="command">{commandWords(detail.command)}</code> : ''],
    ['Not shown', detail.hidden ?? ''],
    ['Labels', labels.join(', ')],
  ]
  return (
    <section aria-labelledby="facts-title">
      <h3 id="facts-title">Facts</h3>
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
    </section>
  )
}
