// The past of one workload: its timeline, what it used of its GPUs, its attempts, and their output.

import { useState } from 'react'
import { workloadPath } from '../api/client'
import type { HistoryView, WorkloadDetail } from '../api/views'
import { usePolled } from '../live/hooks'
import { ErrorMessage, Skeleton } from '../page/Panel'
import { isOver } from '../words/work'
import { Attempts } from '../work/Attempts'
import { Efficiency } from './Efficiency'
import { Logs } from './Logs'
import { Timeline } from './Timeline'

const AGAIN_MS = 5000
const OVER_AGAIN_MS = 60_000

export function Past({ detail }: { detail: WorkloadDetail }) {
  const work = detail.summary
  const [chosen, setChosen] = useState(0) // a submission; 0: the latest
  const query = chosen ? `?submission=${chosen}` : ''
  const again = isOver(work.state) || chosen ? OVER_AGAIN_MS : AGAIN_MS
  const past = usePolled<HistoryView>(`${workloadPath(work.name)}/history${query}`, again, `${work.state} ${work.attempt}`)
  const found = past.value
  const submission = chosen || detail.submission
  return (
    <>
      {found && found.submissions.length > 1 && (
        <label className="submissions">
          Submission{' '}
          <select value={found.submission} onChange={(event) => setChosen(Number(event.target.value))}>
            {found.submissions.map((number) => (
              <option key={number}>{number}</option>
            ))}
          </select>
        </label>
      )}
      {past.problem && <ErrorMessage>{past.problem}</ErrorMessage>}
      {found ? (
        <>
          <Timeline past={found} />
          <Efficiency past={found} />
          <Attempts attempts={found.attempts} />
        </>
      ) : (
        !past.problem && <Skeleton rows={4} />
      )}
      {!detail.hidden && work.started_s > 0 && (
        <Logs key={submission} workload={work.name} submission={submission} isOver={isOver(work.state)} />
      )}
    </>
  )
}
