// Change a workload in place. Only who may change it sees the form, and nothing is sent before it is confirmed.

import { type FormEvent, useState } from 'react'
import { type Fields, change } from '../api/client'
import type { WorkloadDetail } from '../api/views'
import { ErrorMessage } from '../page/Panel'
import { type Draft, type Field, TITLES, changeWords, currentDraft, fieldsOf, timeProblem } from '../words/changes'

const HINTS: Partial<Record<Field, string>> = { time: 'none, or 2h30m', gpus: 'as it is', pods: 'as it is' }

export function ChangeForm({ detail, onDone }: { detail: WorkloadDetail; onDone: () => void }) {
  const [before, setBefore] = useState<Draft | null>(null) // as it was when the form was opened; null: it is closed
  const [draft, setDraft] = useState<Draft>({})
  const [asked, setAsked] = useState<Fields | null>(null)
  const [isBusy, setBusy] = useState(false)
  const [outcome, setOutcome] = useState('')
  const [problem, setProblem] = useState('')

  const now = currentDraft(detail)
  if (!Object.keys(now).length) return outcome ? <p className="outcome">{outcome}</p> : null

  const open = () => {
    setBefore(now)
    setDraft(now)
    setOutcome('')
    setProblem('')
  }
  const close = () => {
    setBefore(null)
    setAsked(null)
    setProblem('')
  }
  const ask = (event: FormEvent) => {
    event.preventDefault()
    const fields = fieldsOf(before ?? {}, draft)
    setProblem(timeProblem(fields))
    if (!timeProblem(fields)) Object.keys(fields).length ? setAsked(fields) : close()
  }
  const send = async () => {
    setBusy(true)
    try {
      setOutcome((await change(detail.summary.name, asked ?? {})).join('; '))
      close()
      onDone()
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
      setAsked(null)
    }
    setBusy(false)
  }

  return (
    <div className="actions change-form">
      {!before ? (
        <div className="buttons">
          <button type="button" onClick={open}>
            Change …
          </button>
        </div>
      ) : asked ? (
        <div className="confirm" role="group" aria-label="Confirm the change">
          <span>Change {changeWords(before, asked)}? It keeps its age.</span>
          <button type="button" autoFocus disabled={isBusy} onClick={() => void send()}>
            Yes, change it
          </button>
          <button type="button" disabled={isBusy} onClick={() => setAsked(null)}>
            Back
          </button>
        </div>
      ) : (
        <form aria-label="Change" onSubmit={ask}>
          {(Object.keys(before) as Field[]).map((field) => (
            <label key={field}>
              <span>{TITLES[field]}</span>
              <input
                name={field}
                value={draft[field] ?? ''}
                placeholder={HINTS[field]}
                autoComplete="off"
                spellCheck={false}
                onChange={(event) => setDraft({ ...draft, [field]: event.target.value })}
              />
            </label>
          ))}
          <div className="buttons">
            <button type="submit">Change</button>
            <button type="button" onClick={close}>
              Leave it
            </button>
          </div>
        </form>
      )}
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
      <p className="outcome" aria-live="polite">
        {outcome}
      </p>
    </div>
  )
}
