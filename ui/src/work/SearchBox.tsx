// A search field that asks once the typing pauses.

import { useEffect, useRef, useState } from 'react'

const PAUSE_MS = 250

export function SearchBox({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const [typed, setTyped] = useState(value)
  const timer = useRef<number>(undefined)
  useEffect(() => setTyped(value), [value])
  useEffect(() => () => window.clearTimeout(timer.current), [])
  const type = (text: string) => {
    setTyped(text)
    window.clearTimeout(timer.current)
    timer.current = window.setTimeout(() => onChange(text.trim()), PAUSE_MS)
  }
  return (
    <input
      type="search"
      placeholder="name, user:ada, node:node-3, team=ml"
      aria-label="Search the work by name, user:NAME, node:NAME or label=VALUE"
      autoComplete="off"
      spellCheck={false}
      value={typed}
      onChange={(event) => type(event.target.value)}
    />
  )
}
