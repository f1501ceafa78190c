// The pieces every part of the page is made of: a panel, a skeleton, a line to copy, a state's mark, a workload's name.

import { type ReactNode, useEffect, useId, useRef, useState } from 'react'
import type { WorkloadState } from '../api/views'
import { shortName } from '../words/work'

interface PanelProps {
  title: string
  aside?: ReactNode
  problem?: string // shown above what is still known
  className?: string
  children: ReactNode
}

export function Panel({ title, aside, problem, className = '', children }: PanelProps) {
  const id = useId()
  return (
    <section className={`panel ${className}`} aria-labelledby={id}>
      <header className="panel-head">
        <h2 id={id}>{title}</h2>
        <div className="panel-aside">{aside}</div>
      </header>
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
      {children}
    </section>
  )
}

export function ErrorMessage({ children }: { children: ReactNode }) {
  return (
    <p className="trouble" role="alert">
      {children}
    </p>
  )
}

export function Skeleton({ rows, tall = false }: { rows: number; tall?: boolean }) {
  return (
    <div className="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, row) => (
        <span key={row} className={tall ? 'bone tall' : 'bone'} />
      ))}
    </div>
  )
}

/** A command to type, with a button that copies it. */
export function CommandLine({ children }: { children: string }) {
  const [isCopied, setCopied] = useState(false)
  useEffect(() => {
    if (!isCopied) return
    const timer = window.setTimeout(() => setCopied(false), 2000)
    return () => window.clearTimeout(timer)
  }, [isCopied])
  const line = useRef<HTMLElement>(null)
  const copy = () => {
    // Away from localhost and HTTPS a page may not write to the clipboard: then the line is marked, for the keys to copy.
    const copied = navigator.clipboard?.writeText(children) ?? Promise.reject(new Error('no clipboard'))
    copied.then(
      () => setCopied(true),
      () => line.current && window.getSelection()?.selectAllChildren(line.current),
    )
  }
  return (
    <div className="command">
      <code ref={line}>
        {children.split(' ').map((word, index) => (
          <span key={index}>{word} </span>
        ))}
      </code>
      <button type="button" onClick={copy} aria-label={`Copy the command ${children}`}>
        <span aria-live="polite">{isCopied ? 'Copied' : 'Copy'}</span>
      </button>
    </div>
  )
}

const MARKS: Record<WorkloadState, ReactNode> = {
  waiting: <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" strokeWidth="1.6" />,
  held: <path d="M3.5 2.5h2v7h-2zM6.5 2.5h2v7h-2z" fill="currentColor" />,
  starting: (
    <>
      <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" strokeWidth="1.6" />
      <path d="M6 2a4 4 0 0 1 0 8z" fill="currentColor" />
    </>
  ),
  running: <path d="M3 1.8 10 6 3 10.2z" fill="currentColor" />,
  stopping: <rect x="2.5" y="2.5" width="7" height="7" rx="1" fill="none" stroke="currentColor" strokeWidth="1.6" />,
  succeeded: <path d="m2 6.4 2.7 2.7L10 3.4" fill="none" stroke="currentColor" strokeWidth="1.8" />,
  failed: <path d="m2.7 2.7 6.6 6.6m0-6.6-6.6 6.6" fill="none" stroke="currentColor" strokeWidth="1.8" />,
  cancelled: <path d="M2 6h8" fill="none" stroke="currentColor" strokeWidth="1.8" />,
}

/** A state as a shape and a word; the colour only repeats them. */
export function StateMark({ state }: { state: WorkloadState }) {
  return (
    <span className={`state ${state}`}>
      <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
        {MARKS[state]}
      </svg>
      <span className="state-word">{state}</span>
    </span>
  )
}

/** A workload's name as people say it, with a namespace of its own stepping back. */
export function WorkName({ name }: { name: string }) {
  const short = shortName(name)
  const slash = short.indexOf('/') + 1
  return (
    <>
      {slash > 0 && <span className="namespace">{short.slice(0, slash)}</span>}
      {short.slice(slash)}
    </>
  )
}
