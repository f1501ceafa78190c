// Queues as a tree, and a queue's numbers as a bar and a sentence.
//
// In: the API's flat list. Out: branches; fractions of the bar; words.

import type { AmountView, QueueView } from '../api/views'
import { counted, gpuNumber, gpus } from '../words/amounts'

export interface Branch {
  queue: QueueView
  below: Branch[]
}

/** Parents before children need not be given; a queue whose parent is unknown stands at the top. */
export function buildTree(queues: readonly QueueView[]): Branch[] {
  const branches = new Map(queues.map((queue) => [queue.name, { queue, below: [] } as Branch]))
  const top: Branch[] = []
  for (const branch of branches.values()) {
    const parent = branches.get(branch.queue.parent)
    if (parent && parent !== branch) parent.below.push(branch)
    else top.push(branch)
  }
  return top
}

export interface Bar {
  within: number // each 0..1 of the bar's length
  over: number
  quota: number | null // where the mark stands; null: no mark
  share: number | null
}

/** The bar is as long as the queue may grow: its limit, else the whole cluster. */
export function bar(amount: AmountView, clusterTotal: number): Bar {
  const whole = Math.max(amount.limit >= 0 ? amount.limit : clusterTotal, amount.used, 1)
  const within = amount.quota < 0 ? amount.used : Math.min(amount.used, amount.quota)
  const mark = (at: number) => (at > 0 && at < whole ? at / whole : null)
  const share = amount.share > 0 ? Math.min(amount.share / whole, 1) : null
  return { within: within / whole, over: (amount.used - within) / whole, quota: mark(amount.quota), share }
}

/** "20 of 16 GPUs in quota (4 over), fair share 18 GPUs, limit 32 GPUs". */
export function amountWords(amount: AmountView): string {
  const words: string[] = []
  if (amount.quota < 0) words.push(`${gpus(amount.used)} used, unlimited quota`)
  else if (amount.quota === 0) words.push(`${gpus(amount.used)} used, no quota`)
  else words.push(`${gpuNumber(amount.used)} of ${gpus(amount.quota)} in quota${overWords(amount)}`)
  words.push(`fair share ${gpus(amount.share)}`)
  if (amount.limit >= 0) words.push(`limit ${gpus(amount.limit)}`)
  return words.join(', ')
}

function overWords(amount: AmountView): string {
  return amount.used > amount.quota ? ` (${gpuNumber(amount.used - amount.quota)} over)` : ''
}

/** "3 running, 2 waiting for 12 GPU". */
export function workWords(queue: QueueView): string {
  const running = `${counted(queue.running, 'running', 'running')}`
  if (!queue.waiting) return `${running}, none waiting`
  const asked = queue.gpu_milli.waiting > 0 ? ` for ${gpus(queue.gpu_milli.waiting)}` : ''
  return `${running}, ${counted(queue.waiting, 'waiting', 'waiting')}${asked}`
}
