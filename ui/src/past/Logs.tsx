// The output of one pod in one attempt: its last lines, asked for when somebody opens it.

import { useEffect, useState } from 'react'
import { ApiError, getText, workloadPath } from '../api/client'
import type { AttemptsView } from '../api/views'
import { usePolled } from '../live/hooks'
import { repeat } from '../live/repeat'
import { ErrorMessage } from '../page/Panel'

const LINES = 500
const AGAIN_MS = 3000
const OVER_AGAIN_MS = 60_000

export function Logs({ workload, submission, isOver }: { workload: string; submission: number; isOver: boolean }) {
  const [isOpen, setOpen] = useState(false)
  return (
    <details className="logs" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Output</summary>
      {isOpen && <Output workload={workload} submission={submission} isOver={isOver} />}
    </details>
  )
}

function Output({ workload, submission, isOver }: { workload: string; submission: number; isOver: boolean }) {
  const again = isOver ? OVER_AGAIN_MS : AGAIN_MS
  const [pod, setPod] = useState('')
  const [attempt, setAttempt] = useState(0) // 0: the latest
  const path = workloadPath(workload)
  const of = `submission=${submission}${pod ? `&pod=${encodeURIComponent(pod)}` : ''}`
  const kept = usePolled<AttemptsView>(`${path}/attempts?${of}`, again)
  const attempts = kept.value?.attempts ?? []
  const chosen = attempts.some((each) => each.attempt === attempt) ? attempt : (attempts.at(-1)?.attempt ?? 0)
  const log = useLog(chosen ? `${path}/logs?${of}&attempt=${chosen}&tail=${LINES}` : '', again)
  const pods = kept.value?.pods ?? []
  return (
    <>
      <div className="log-choice">
        {attempts.length > 1 && (
          <label>
            Attempt{' '}
            <select value={chosen} onChange={(event) => setAttempt(Number(event.target.value))}>
              {attempts.map((each) => (
                <option key={each.attempt}>{each.attempt}</option>
              ))}
            </select>
          </label>
        )}
        {pods.length > 1 && (
          <label>
            Pod{' '}
            <select value={pod || pods[0]} onChange={(event) => setPod(event.target.value)}>
              {pods.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
      </div>
      {(kept.problem || log.problem) && <ErrorMessage>{kept.problem || log.problem}</ErrorMessage>}
      {kept.value && !chosen && <p className="muted">Kaiwo keeps no output of it: it ran without a command, or elsewhere.</p>}
      {log.text !== null && (
        <pre className="log" tabIndex={0} role="region" aria-label={`Output of attempt ${chosen}`}>
          {log.text || 'It wrote nothing.'}
        </pre>
      )}
    </>
  )
}

function useLog(path: string, everyMs: number): { text: string | null; problem: string } {
  const [log, setLog] = useState<{ path: string; text: string | null; problem: string }>({ path, text: null, problem: '' })
  useEffect(() => {
    if (!path) return
    return repeat(everyMs, async (signal) => {
      try {
        setLog({ path, text: await getText(path, signal), problem: '' })
      } catch (error) {
        if (!signal.aborted) setLog({ path, text: null, problem: error instanceof ApiError ? error.message : String(error) })
      }
    })
  }, [path, everyMs])
  return log.path === path ? log : { text: null, problem: '' }
}
