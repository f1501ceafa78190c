// What can be done to a workload. What stops it asks once more, in place, and says whose work that is.

import { useEffect, useState } from 'react'
import { type Verb, act } from '../api/client'
import type { WorkloadView } from '../api/views'
import { ErrorMessage } from '../page/Panel'
import { stopWords, verbsFor } from '../words/work'

interface Props {
  work: WorkloadView
  mayDo: readonly string[] // as the server says
  onDone: () => void
}

const TITLES: Record<Verb, string> = { hold: 'Hold', release: 'Release', requeue: 'Requeue', cancel: 'Cancel' }

export function Actions({ work, mayDo, onDone }: Props) {
  const { name, state } = work
  const [busy, setBusy] = useState<Verb | ''>('')
  const [asked, setAsked] = useState<Verb | ''>('')
  const [outcome, setOutcome] = useState('')
  const [errorMessage, setErrorMessage] = useState('')
  useEffect(() => {
    setAsked('')
    setOutcome('')
    setErrorMessage('')
  }, [name])
  useEffect(() => setAsked(''), [state])

  const run = async (verb: Verb) => {
    setBusy(verb)
    setOutcome('')
    setErrorMessage('')
    setAsked('')
    try {
      const { done, warnings } = await act(verb, name)
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
      {asked ? (
        <div className="confirm" role="group" aria-label="Confirm">
          <span>{stopWords(asked, work)}</span>
          <button type="button" className="danger" autoFocus onClick={() => void run(asked)}>
            Yes, {asked} it
          </button>
          <button type="button" onClick={() => setAsked('')}>
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
                onClick={() => (stopWords(verb, work) ? setAsked(verb) : void run(verb))}
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
