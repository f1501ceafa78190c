// Repeat a task, but not while the tab is hidden.

/** Runs `task` now and again `everyMs` after it ended. The function it returns stops that and aborts the signal. */
export function repeat(everyMs: number, task: (signal: AbortSignal) => Promise<void>): () => void {
  const stop = new AbortController()
  let timer: number | undefined
  const run = async () => {
    if (!document.hidden) await task(stop.signal).catch(() => undefined) // the next run makes up for a failed one
    if (!stop.signal.aborted) timer = window.setTimeout(run, everyMs)
  }
  void run()
  return () => {
    stop.abort()
    window.clearTimeout(timer)
  }
}
