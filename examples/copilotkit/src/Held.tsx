import { type Interrupt, useAgent } from "@copilotkit/react-core/v2";
import { useEffect, useState } from "react";
import { Facts } from "./Requests";
import { read } from "./requests";

/** What others decide while the page waits: with X-Sayso-Hold a run stays open over it. */
export function Held() {
  const { agent } = useAgent({ updates: [] });
  const [held, setHeld] = useState<Interrupt[]>([]);

  useEffect(() => {
    const over = () => setHeld([]);
    const heard = agent.subscribe({
      onCustomEvent: ({ event }) => {
        if (event.name === "sayso.held") setHeld(event.value.interrupts);
      },
      onToolCallResultEvent: over,
      onRunFinalized: over,
      onRunFailed: over,
    });
    return () => heard.unsubscribe();
  }, [agent]);

  if (held.length === 0) return null;
  return (
    <section className="requests" aria-label="Others decide">
      {held.map((interrupt) => {
        const asked = read(interrupt);
        return (
          <article className="card request is-held" key={interrupt.id}>
            <header>
              <h2>{asked.title}</h2>
              <a href={asked.url} target="_blank" rel="noreferrer">
                On the desk
              </a>
            </header>
            <Facts of={asked.arguments} />
            <footer>
              <span role="status">Waiting for a decision on the desk…</span>
            </footer>
          </article>
        );
      })}
    </section>
  );
}
