import type { Interrupt } from "@copilotkit/react-core/v2";
import { useState } from "react";
import { type Answer, read } from "./requests";
import { type Time, Times } from "./Times";

interface Props {
  interrupts: readonly Interrupt[];
  onAnswer: (id: string, answer: Answer) => void;
}

/**
 * The open requests of a conversation. They are answered together: what is said to one of
 * several can be changed until all have an answer.
 */
export function Requests({ interrupts, onAnswer }: Props) {
  const [given, setGiven] = useState<Record<string, Answer>>({});
  const left = interrupts.filter(({ id }) => !given[id]).length;

  const answer = (id: string, said: Answer) => {
    setGiven({ ...given, [id]: said });
    onAnswer(id, said);
  };

  return (
    <section className="requests" aria-label="Waiting for an answer">
      {interrupts.map((interrupt) => (
        <Request
          key={interrupt.id}
          interrupt={interrupt}
          given={given[interrupt.id]}
          left={left}
          onAnswer={(said) => answer(interrupt.id, said)}
        />
      ))}
    </section>
  );
}

interface RequestProps {
  interrupt: Interrupt;
  given: Answer | undefined;
  left: number;
  onAnswer: (answer: Answer) => void;
}

function Request({ interrupt, given, left, onAnswer }: RequestProps) {
  const asked = read(interrupt);
  const [note, setNote] = useState("");
  const [time, setTime] = useState<Time | null>(null);
  const waits = asked.times !== null && time === null;

  const resolve = (payload: Record<string, unknown>) =>
    onAnswer({ status: "resolved", payload });
  const approve = () => resolve({ approved: true, ...time, ...(note && { note }) });
  const deny = () => resolve({ approved: false, ...(note && { note }) });

  return (
    <article className="card request" data-tool={asked.tool}>
      <header>
        <h2>{asked.title}</h2>
        {asked.url && (
          <a href={asked.url} target="_blank" rel="noreferrer">
            On the desk
          </a>
        )}
      </header>
      <Facts of={asked.arguments} />
      {asked.times && <Times times={asked.times} chosen={time} onChoose={setTime} />}
      {!asked.isQuestion && (
        <label className="note">
          Note
          <textarea
            rows={1}
            value={note}
            placeholder="Why. The agent reads it."
            onChange={(event) => setNote(event.target.value)}
          />
        </label>
      )}
      <footer>
        {asked.isQuestion ? (
          <>
            <button className="primary" disabled={waits} onClick={() => resolve({ ...time })}>
              Answer
            </button>
            <button onClick={() => resolve({ cancelled: true })}>None of these</button>
          </>
        ) : (
          <>
            <button className="yes" disabled={waits} onClick={approve}>
              Approve
            </button>
            <button className="no" onClick={deny}>
              Deny
            </button>
          </>
        )}
        <button className="quiet" onClick={() => onAnswer({ status: "cancelled" })}>
          Cancel
        </button>
        <span role="status">{given && said(given, left)}</span>
      </footer>
    </article>
  );
}

function said(answer: Answer, left: number): string {
  const what =
    answer.status === "cancelled"
      ? "Cancelled"
      : answer.payload.approved === true
        ? "Approved"
        : answer.payload.approved === false
          ? "Denied"
          : "Answered";
  if (left === 0) return `${what}.`;
  return `${what}. Sent once ${left === 1 ? "the other one is" : `${left} more are`} answered.`;
}

/** The arguments as the tool would get them. */
export function Facts({ of }: { of: Record<string, unknown> }) {
  const entries = Object.entries(of);
  if (entries.length === 0) return null;
  return (
    <dl className="facts">
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === "string" ? value : JSON.stringify(value)}</dd>
        </div>
      ))}
    </dl>
  );
}
