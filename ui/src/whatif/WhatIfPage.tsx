// Ask what a change of quotas, limits or nodes would bring: the live cluster is copied, changed, and run forward.

import { type FormEvent, useState } from 'react'
import { askWhatIf } from '../api/client'
import type { QueueForecastView, QueueView, StatusView, WhatIfView } from '../api/views'
import { Nothing } from '../page/AnswerPanel'
import { Panel } from '../page/Panel'
import { type Column, PlainTable } from '../page/PlainTable'
import { counted } from '../words/amounts'
import { Line } from '../work/SubmitForm'
import { both, gpuHours, readQuestion, bothSpans, utilisationWords } from './words'

interface Props {
  queues: readonly QueueView[]
  status: StatusView | undefined
}

export function WhatIfPage({ queues, status }: Props) {
  const [answer, setAnswer] = useState<WhatIfView | null>(null)
  const [isAsking, setAsking] = useState(false)
  const [problem, setProblem] = useState('')
  const ask = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const given = new FormData(event.currentTarget)
    const read = readQuestion((name) => String(given.get(name) ?? '').trim())
    setProblem(typeof read === 'string' ? read : '')
    if (typeof read === 'string') return
    setAsking(true)
    setAnswer(null)
    try {
      setAnswer(await askWhatIf(read))
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
    setAsking(false)
  }
  return (
    <Panel title="What if" aside="Tried on a copy; the cluster does not change" problem={problem}>
      <form className="submit-form what-if-form" aria-label="What to change" onSubmit={(event) => void ask(event)}>
        <label>
          <span>Queue</span>
          <select name="queue" defaultValue="">
            <option value="">none</option>
            {queues.map((queue) => (
              <option key={queue.name}>{queue.name}</option>
            ))}
          </select>
        </label>
        <Line name="quota" title="Its quota, in GPUs" hint="as it is" />
        <Line name="limit" title="Its limit, in GPUs" hint="as it is" />
        <Line name="nodes" title="More nodes" hint="none, or 4" />
        <Line name="model" title="Their GPU model" hint="MI300X" />
        <Line name="without" title="Without these nodes" hint="node-1, node-2" />
        <div className="buttons">
          <button type="submit" disabled={isAsking}>
            {isAsking ? 'Running the copy forward …' : 'Ask'}
          </button>
        </div>
      </form>
      <div aria-live="polite">
        {isAsking && status && <p className="muted">The shipped scheduler decides for the copy, until all work has ended.</p>}
        {answer && <Answer answer={answer} />}
      </div>
    </Panel>
  )
}

const COLUMNS: Column<QueueForecastView>[] = [
  { title: 'Queue', cell: (row) => row.queue },
  { title: 'Waiting', cell: (row) => both(row.waiting) },
  { title: 'Started', cell: (row) => both(row.started) },
  { title: 'Mean wait', cell: (row) => bothSpans(row.wait_s) },
  { title: 'GPU-hours', cell: (row) => gpuHours(row.gpu_hours) },
  { title: 'Evicted', cell: (row) => both(row.evictions) },
]

function Answer({ answer }: { answer: WhatIfView }) {
  return (
    <div className="what-if-answer">
      {answer.queues.length ? (
        <PlainTable columns={COLUMNS} rows={answer.queues} rowKey={(row) => row.queue} />
      ) : (
        <Nothing>No work waits in any queue.</Nothing>
      )}
      <p>{utilisationWords(answer)}</p>
      {!answer.is_whole.every(Boolean) && <p className="muted">The runs were ended before all work had ended, so later effects are missing.</p>}
      {answer.unknown > 0 && (
        <p className="muted">
          Nobody knows how long {counted(answer.unknown, 'workload')} will run; in the copy {answer.unknown === 1 ? 'it never ends' : 'they never end'}.
        </p>
      )}
    </div>
  )
}
