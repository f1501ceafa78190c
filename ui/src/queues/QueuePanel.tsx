// The queues as a tree of bars. A click on a queue shows its work.

import { useState } from 'react'
import type { QueueView } from '../api/views'
import { Panel, Skeleton } from '../page/Panel'
import { counted } from '../words/amounts'
import { ShareArithmetic } from './ShareArithmetic'
import { amountWords, bar, type Branch, buildTree, workWords } from './tree'

interface Props {
  queues: readonly QueueView[] | null
  clusterMilli: number
  chosen: string
  problem: string
  onChoose: (queue: string) => void
  onHistory: (queue: string) => void
}

export function QueuePanel({ queues, clusterMilli, chosen, problem, onChoose, onHistory }: Props) {
  return (
    <Panel title="Queues" className="queues" aside={queues && counted(queues.length, 'queue')} problem={problem}>
      {!queues ? (
        <Skeleton rows={4} />
      ) : queues.length ? (
        <>
          <Legend />
          <Branches branches={buildTree(queues)} {...{ clusterMilli, chosen, onChoose, onHistory }} />
        </>
      ) : (
        <p className="teach">There are no queues. Create one with kaiwo apply -f; workloads that name it wait until then.</p>
      )}
    </Panel>
  )
}

function Legend() {
  return (
    <p className="queue-legend" aria-hidden="true">
      <span className="sample within" /> used
      <span className="sample over" /> over quota
      <span className="sample quota" /> quota
      <span className="sample share" /> fair share
      <span className="muted">full width: the limit, or the whole cluster</span>
    </p>
  )
}

type Shared = Pick<Props, 'clusterMilli' | 'chosen' | 'onChoose' | 'onHistory'>

function Branches({ branches, ...shared }: Shared & { branches: Branch[] }) {
  return (
    <ul className="branches">
      {branches.map((branch) => (
        <BranchItem key={branch.queue.name} branch={branch} {...shared} />
      ))}
    </ul>
  )
}

function BranchItem({ branch, ...shared }: Shared & { branch: Branch }) {
  const [isOpen, setOpen] = useState(true)
  const [isTold, setTold] = useState(false)
  const { queue, below } = branch
  const isChosen = shared.chosen === queue.name
  return (
    <li>
      <div className={isChosen ? 'queue chosen' : 'queue'}>
        <div className="queue-head">
          {below.length > 0 && (
            <button
              type="button"
              className="fold"
              aria-expanded={isOpen}
              aria-label={`Queues below ${queue.name}`}
              onClick={() => setOpen(!isOpen)}
            >
              <svg viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
                <path d={isOpen ? 'M1 3l4 4 4-4' : 'M3 1l4 4-4 4'} fill="none" stroke="currentColor" strokeWidth="1.6" />
              </svg>
            </button>
          )}
          <QueueName queue={queue} isChosen={isChosen} onChoose={shared.onChoose} />
          {saysMore(queue) && <span className="muted">{queue.display_name}</span>}
        </div>
        <QueueBar queue={queue} clusterMilli={shared.clusterMilli} />
        <p className="queue-words">{amountWords(queue.gpu_milli)}</p>
        <p className="queue-words">
          {workWords(queue)}{' '}
          <button
            type="button"
            className="link why-share"
            aria-expanded={isTold}
            aria-label={`${isTold ? 'hide the calculation' : 'why this share?'} (queue ${queue.name})`}
            onClick={() => setTold(!isTold)}
          >
            {isTold ? 'hide the calculation' : 'why this share?'}
          </button>{' '}
          <button
            type="button"
            className="link why-share"
            aria-label={`over time (queue ${queue.name})`}
            onClick={() => shared.onHistory(queue.name)}
          >
            over time
          </button>
        </p>
        {isTold && <ShareArithmetic queue={queue.name} />}
      </div>
      {below.length > 0 && isOpen && <Branches branches={below} {...shared} />}
    </li>
  )
}

const saysMore = (queue: QueueView) => queue.display_name.toLowerCase() !== queue.name.toLowerCase()

/** Only leaf queues take work, so only they can be chosen. */
function QueueName({ queue, isChosen, onChoose }: { queue: QueueView; isChosen: boolean; onChoose: Props['onChoose'] }) {
  if (!queue.is_leaf) return <strong>{queue.name}</strong>
  return (
    <button
      type="button"
      className="link"
      aria-pressed={isChosen}
      title={isChosen ? 'Show the work of all queues' : `Show only the work of ${queue.name}`}
      onClick={() => onChoose(isChosen ? '' : queue.name)}
    >
      {queue.name}
    </button>
  )
}

function QueueBar({ queue, clusterMilli }: { queue: QueueView; clusterMilli: number }) {
  const { within, over, quota, share } = bar(queue.gpu_milli, clusterMilli)
  const wide = (part: number) => ({ width: `${100 * part}%` })
  return (
    <div className="queue-bar" aria-hidden="true">
      <span className="within" style={wide(within)} />
      <span className="over" style={wide(over)} />
      {quota !== null && <span className="quota" style={{ left: `${100 * quota}%` }} />}
      {share !== null && <span className="share" style={{ left: `${100 * share}%` }} />}
    </div>
  )
}
