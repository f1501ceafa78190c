// What can be done to a node. Draining says first whose work it stops.

import { useEffect, useState } from 'react'
import { type NodeVerb, getJson, nodeAct } from '../api/client'
import type { IdentityView, NodeView } from '../api/views'
import { usePolled } from '../live/hooks'
import { ErrorMessage } from '../page/Panel'
import { drainWords, verbsOfNode } from './words'

const RIGHTS_AGAIN_MS = 60_000
const TITLES: Record<NodeVerb, string> = { cordon: 'Cordon', uncordon: 'Uncordon', drain: 'Drain …' }

export function NodeActions({ node, onDone }: { node: NodeView; onDone: () => void }) {
  const { value: person } = usePolled<IdentityView>('/whoami', RIGHTS_AGAIN_MS)
  const [asked, setAsked] = useState<string[] | null>(null) // what draining would stop; null: nobody asked
  const [busy, setBusy] = useState<NodeVerb | ''>('')
  const [outcome, setOutcome] = useState('')
  const [problem, setProblem] = useState('')
  useEffect(() => {
    setAsked(null)
    setOutcome('')
    setProblem('')
  }, [node.name])

  const run = async (verb: NodeVerb) => {
    setBusy(verb)
    setProblem('')
    setOutcome('')
    setAsked(null)
    try {
      const { done, warnings } = await nodeAct(verb, node.name)
      setOutcome([...done, ...(warnings ?? [])].join('; '))
      onDone()
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
    setBusy('')
  }
  const ask = async () => {
    try {
      setAsked(drainWords(await getJson<NodeView>(`/nodes/${encodeURIComponent(node.name)}`)))
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }

  const verbs = verbsOfNode(node.state, person?.rights ?? [])
  return (
    <div className="actions">
      {asked ? (
        <div className="confirm" role="group" aria-label="Confirm">
          <span>
            Drain {node.name}? {asked.length ? `It stops ${asked.join(', ')}; this work waits again.` : 'No work with GPUs runs on it.'}
          </span>
          <button type="button" className="danger" autoFocus onClick={() => void run('drain')}>
            Yes, drain it
          </button>
          <button type="button" onClick={() => setAsked(null)}>
            Leave it
          </button>
        </div>
      ) : (
        verbs.length > 0 && (
          <div className="buttons">
            {verbs.map((verb) => (
              <button key={verb} type="button" disabled={busy !== ''} onClick={() => void (verb === 'drain' ? ask() : run(verb))}>
                {TITLES[verb]}
              </button>
            ))}
          </div>
        )
      )}
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
      <p className="outcome" aria-live="polite">
        {outcome}
      </p>
    </div>
  )
}
