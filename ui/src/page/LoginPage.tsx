// What a browser sees that is not logged in: how to log in, and why it is not.

import { type Login, loginRefusal } from '../api/session'

export function LoginPage({ login }: { login: Login }) {
  const refusal = loginRefusal()
  return (
    <section className="login" aria-labelledby="login-title">
      <h2 id="login-title">{login === 'ended' ? 'Your login has ended' : 'Log in to see this cluster'}</h2>
      {login === 'ended' && <p>Kaiwo was restarted, or this browser was logged out. Running work is not affected.</p>}
      {refusal && login !== 'ended' && <p role="alert">{refusal}</p>}
      <p>Run this in a terminal, and open the address that it prints in this browser:</p>
      <pre>
        <code>kaiwo login</code>
      </pre>
      <p className="muted">
        The address works once, for 5 minutes. So does the one that <code>kaiwo up</code> prints when it starts.
      </p>
    </section>
  )
}
