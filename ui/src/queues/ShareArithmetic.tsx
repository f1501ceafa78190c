// The arithmetic of one queue's fair share, fetched when it is opened. The sentences are the API's own.

import type { ShareView, TermsView, TurnView } from '../api/views'
import { usePolled } from '../live/hooks'
import { Skeleton, ErrorMessage } from '../page/Panel'

const AGAIN_MS = 4000
const TITLES: Record<string, string> = { gpu: 'GPUs', cpu: 'CPUs', memory: 'Memory' }

export function ShareArithmetic({ queue }: { queue: string }) {
  const { value, problem } = usePolled<ShareView>(`/shares/${encodeURIComponent(queue)}`, AGAIN_MS)
  return (
    <div className="arithmetic">
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
      {!value && !problem && <Skeleton rows={3} />}
      {value?.resources.map((terms) => <Terms key={terms.resource} terms={terms} />)}
      {value && <p>Reclaim: {value.reclaim}.</p>}
      {value?.turn && <p>{turnWords(value.turn)}</p>}
    </div>
  )
}

function Terms({ terms }: { terms: TermsView }) {
  return (
    <section>
      <h4>{TITLES[terms.resource] ?? terms.resource}</h4>
      <ol>
        {terms.arithmetic.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ol>
    </section>
  )
}

function turnWords(turn: TurnView): string {
  const place = turn.place === 1 ? 'It is next' : `It is number ${turn.place}`
  return `${place} of ${turn.of} sibling queues with waiting work; ${turn.workload} is tried first.`
}
