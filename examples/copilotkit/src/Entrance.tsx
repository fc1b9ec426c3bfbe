import { type FormEvent, useState } from "react";
import { type Access, remember, remembered, SESSION } from "./desk";
import mark from "./mark.svg";

interface Props {
  problem: string;
  /** On this site, as far as the page has found out. */
  signedIn: boolean;
  waiting: boolean;
  onEnter: (access: Access) => void;
}

/** Where the desk is and who asks: by a token, or by the session of this site. */
export function Entrance({ problem, signedIn, waiting, onEnter }: Props) {
  const [known] = useState(remembered);

  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    onEnter({
      url: String(given.get("url")).trim().replace(/\/+$/, ""),
      token: String(given.get("token")).trim(),
    });
  };

  return (
    <main className="entrance">
      <form className="card" onSubmit={submit} aria-labelledby="entrance-title">
        <header>
          <img src={mark} alt="" width="32" height="32" />
          <h1 id="entrance-title">Talk to the agents of a desk</h1>
        </header>
        <label>
          Address of the desk
          <input
            name="url"
            type="url"
            defaultValue={known?.url ?? ""}
            placeholder="this site"
          />
        </label>
        <label>
          API token
          <input
            name="token"
            type="password"
            autoComplete="off"
            spellCheck={false}
            placeholder="none: my session on this site"
          />
          <small>
            Kept by this tab only. Made under <i>API tokens</i> on the desk.
          </small>
        </label>
        {problem && (
          <p className="problem" role="alert">
            {problem}
          </p>
        )}
        <div className="actions">
          <button className="primary" disabled={waiting}>
            {waiting ? "Connecting…" : "Connect"}
          </button>
          {signedIn ? (
            <span>You are signed in on this site: no token is needed.</span>
          ) : (
            // Whoever comes back from there is let in by their session.
            <a
              href={`/accounts/login/?next=${encodeURIComponent(location.pathname)}`}
              onClick={() => remember(SESSION)}
            >
              Sign in on this site
            </a>
          )}
        </div>
      </form>
    </main>
  );
}
