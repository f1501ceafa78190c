// Why a workload waits, and the cheapest change that would start it now.

import type { ChangeView, ObstacleView, WhyView } from '../api/views'
import { CommandLine, Skeleton, ErrorMessage } from '../page/Panel'
import { counted, inUnit } from '../words/amounts'
import { asSentence } from '../words/work'

interface Props {
  why: WhyView | null
  problem: string
  obstacles: ObstacleView[] // from the detail, until the answer is there
  planned: string // when it is planned to start; empty: it has no planned start
}

export function Why({ why, problem, obstacles, planned }: Props) {
  const shown = why?.obstacles.length ? why.obstacles : obstacles
  return (
    <section className="why" aria-labelledby="why-title">
      <h3 id="why-title">Why it waits</h3>
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
      {why ? <p className="answer">{why.answer}</p> : !problem && <Skeleton rows={2} />}
      {why && why.position > 0 && (
        <p className="muted">
          It is number {why.position} of its queue;{' '}
          {why.ahead > 0 ? `${counted(why.ahead, 'workload')} tried before it` : 'no workload is tried before it'}.
        </p>
      )}
      {planned && <p className="planned">{asSentence(planned)}</p>}
      {why?.partitions && <p className="muted">Partitions: {why.partitions}.</p>}
      {why && <Change change={why.change} noChange={why.no_change} />}
      {shown.length > 0 && (
        <>
          <h4>{counted(shown.length, 'obstacle')}</h4>
          <ul className="obstacles">
            {shown.map((obstacle, index) => (
              <Obstacle key={`${obstacle.reason} ${obstacle.subject} ${index}`} obstacle={obstacle} />
            ))}
          </ul>
        </>
      )}
    </section>
  )
}

function Change({ change, noChange }: { change: ChangeView | null; noChange: string }) {
  if (!change) return noChange ? <p className="muted">{noChange}</p> : null
  return (
    <div className="change">
      <h4>To start it now{change.by === 'admin' && ' (an admin must do this)'}</h4>
      <p>{change.sentence}</p>
      {change.command && <CommandLine>{change.command}</CommandLine>}
    </div>
  )
}

function Obstacle({ obstacle }: { obstacle: ObstacleView }) {
  const { sentence, remedy, need, have, unit } = obstacle
  return (
    <li>
      <p>{sentence}</p>
      {(need !== 0 || have !== 0) && (
        <dl className="need-have">
          <div>
            <dt>Need</dt>
            <dd>{inUnit(need, unit, have)}</dd>
          </div>
          <div>
            <dt>Have</dt>
            <dd>{inUnit(have, unit, need)}</dd>
          </div>
        </dl>
      )}
      {remedy && (
        <p className="remedy">
          <span className="muted">What helps: </span>
          {remedy}
        </p>
      )}
    </li>
  )
}
