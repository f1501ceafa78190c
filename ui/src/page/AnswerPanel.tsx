// A panel of one answer that is asked for again and again: a skeleton before it is there, and why it is refused.

import type { ReactNode } from 'react'
import { usePolled } from '../live/hooks'
import { Panel, Skeleton } from './Panel'

const AGAIN_MS = 5000

interface Props<T> {
  title: string
  path: string
  version?: string // another one asks again at once
  children: (value: T) => ReactNode
}

export function AnswerPanel<T>({ title, path, version = '', children }: Props<T>) {
  const { value, problem } = usePolled<T>(path, AGAIN_MS, version)
  return (
    <Panel title={title} problem={problem}>
      {value ? children(value) : !problem && <Skeleton rows={2} />}
    </Panel>
  )
}

/** What a panel says when there is nothing to show. */
export const Nothing = ({ children }: { children: string }) => <p className="muted">{children}</p>
