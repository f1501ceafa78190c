// Submit a workload. The form is there only for people who may, on clusters that take work from Kaiwo.

import { type FormEvent, useState } from 'react'
import { type Fields, submit } from '../api/client'
import type { IdentityView, StatusView } from '../api/views'
import { usePolled } from '../live/hooks'
import { ErrorMessage } from '../page/Panel'

const WHO_AGAIN_MS = 60_000

interface Props {
  status: StatusView | undefined
  queues: readonly string[]
  onSubmitted: (workload: string) => void
}

export function SubmitForm({ status, queues, onSubmitted }: Props) {
  const person = usePolled<IdentityView>('/whoami', WHO_AGAIN_MS)
  const [isOpen, setOpen] = useState(false)
  const [problem, setProblem] = useState('')
  const takesWork = status !== undefined && status.cluster.kind !== 'kubernetes'
  if (!takesWork || !person.value?.rights.includes('submit')) return null

  const send = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const given = new FormData(event.currentTarget)
    try {
      const { names } = await submit(fieldsFrom((name) => String(given.get(name) ?? '').trim()))
      setOpen(false)
      setProblem('')
      onSubmitted(names?.[0] ?? '')
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }

  if (!isOpen) {
    return (
      <div className="submit">
        <button type="button" onClick={() => setOpen(true)}>
          Submit …
        </button>
      </div>
    )
  }
  return (
    <form className="submit submit-form" aria-label="Submit" onSubmit={(event) => void send(event)}>
      <Line name="name" title="Name" isRequired />
      <label>
        <span>Queue</span>
        <select name="queue">
          {queues.map((queue) => (
            <option key={queue}>{queue}</option>
          ))}
        </select>
      </label>
      <Line name="gpus" title="GPUs per pod" initial="1" />
      <Line name="time" title="Time limit" hint="none, or 2h30m" />
      <Line name="command" title="Command" hint="empty: simulated for ten minutes" />
      <div className="buttons">
        <button type="submit">Submit</button>
        <button type="button" onClick={() => setOpen(false)}>
          Close
        </button>
      </div>
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
    </form>
  )
}

/** One line of a form. */
export function Line({ name, title, hint = '', initial = '', isRequired = false }: { name: string; title: string; hint?: string; initial?: string; isRequired?: boolean }) {
  return (
    <label>
      <span>{title}</span>
      <input name={name} defaultValue={initial} placeholder={hint} required={isRequired} autoComplete="off" spellCheck={false} />
    </label>
  )
}

function fieldsFrom(given: (name: string) => string): Fields {
  const gpus = given('gpus')
  const command = given('command')
  return {
    name: given('name'),
    queue: given('queue'),
    ...(gpus ? { gpus: /^\d+$/.test(gpus) ? Number(gpus) : gpus } : {}),
    ...(given('time') ? { time: given('time') } : {}),
    ...(command ? { command: ['sh', '-c', command] } : { simulate: '10m' }),
  }
}
