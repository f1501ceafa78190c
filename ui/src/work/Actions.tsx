// What can be done to a workload. Cancelling asks once more, in place.

import { useEffect, useState } from 'react'
import { type Verb, act } from '../api/client'
import type { WorkloadState } from '../api/views'
import { ErrorMessage } from '../page/Panel'
import { isWaiting, verbsFor } from '../words/work'

interface Props {
  workload: string
  state: WorkloadState
  mayDo: readonly string[] // as the server says
  onDone: () => void
}

const TITLES: Record<Verb, string> = { hold: 'Hold', release: 'Release', requeue: 'Requeue', cancel: 'Cancel' }

export function Actions({ workload, state, mayDo, onDone }: Props) {
  const [busy, setBusy] = useState<Verb | ''>('')
  const [isAsking, setAsking] = useState(false)
  const [outcome, setOutcome] = useState('')
  const [errorMessage, setErrorMessage] = useState('')
  useEffect(() => {
    setAsking(false)
    setOutcome('')
    setErrorMessage('')
  }, [workload])
  useEffect(() => setAsking(false), [state])

  const run = async (verb: Verb) => {
    setBusy(verb)
    setOutcome('')
    setErrorMessage('')
    setAsking(false)
    try {
      const { done, warnings } = await act(verb, workload)
      setOutcome([...done, ...(warnings ?? [])].join('; '))
      onDone()
    } catch (error) {
      setErrorMessage(error instanceof Error ? error.message : String(error))
    }
    setBusy('')
  }

  const verbs = verbsFor(state, mayDo)
  return (
    <div className="actions">
      {isAsking ? (
        <div className="confirm" role="group" aria-label="Confirm">
          <span>Cancel this workload? {isWaiting(state) ? 'It leaves its queue.' : 'It stops and loses work that it has not saved.'}</span>
          <button type="button" className="danger" autoFocus onClick={() => void run('cancel')}>
            Yes, cancel it
          </button>
          <button type="button" onClick={() => setAsking(false)}>
            Keep it
          </button>
        </div>
      ) : (
        verbs.length > 0 && (
          <div className="buttons">
            {verbs.map((verb) => (
              <button
                key={verb}
                type="button"
                disabled={busy !== ''}
                onClick={() => (verb === 'cancel' ? setAsking(true) : void run(verb))}
              >
                {busy === verb ? `${TITLES[verb]} …` : TITLES[verb]}
              </button>
            ))}
          </div>
        )
      )}
      {errorMessage && <ErrorMessage>{errorMessage}</ErrorMessage>}
      <p className="outcome" aria-live="polite">
        {outcome}
      </p>
    </div>
  )
}
