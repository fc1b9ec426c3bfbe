import { type Place, WAYS, type Way } from "./address";
import type { Agent } from "./desk";
import mark from "./mark.svg";

const NAMES: Record<Way, string> = {
  "in-chat": "In the chat",
  beside: "Beside it",
  headless: "Headless",
};

interface Props {
  agents: Agent[];
  place: Place;
  onGo: (change: Partial<Place>) => void;
  onLeave: () => void;
}

export function Bar({ agents, place, onGo, onLeave }: Props) {
  const chosen = agents.find(({ slug }) => slug === place.agent);
  const fresh = () => crypto.randomUUID();

  return (
    <header className="bar">
      <img src={mark} alt="" width="26" height="26" />
      <label className="agent">
        <span className="unseen">Agent</span>
        <select
          value={place.agent}
          onChange={(event) => onGo({ agent: event.target.value, thread: fresh() })}
        >
          {agents.map(({ slug }) => (
            <option key={slug}>{slug}</option>
          ))}
        </select>
      </label>
      <p className="what">{chosen?.description}</p>
      <fieldset className="ways">
        <legend className="unseen">Where approvals are shown</legend>
        {WAYS.map((way) => (
          <label key={way}>
            <input
              type="radio"
              name="way"
              checked={way === place.way}
              onChange={() => onGo({ way })}
            />
            {NAMES[way]}
          </label>
        ))}
      </fieldset>
      <label className="hold" title="The page waits for the result and decides nothing.">
        <input
          type="checkbox"
          checked={place.hold}
          onChange={(event) => onGo({ hold: event.target.checked })}
        />
        Others decide
      </label>
      <button type="button" onClick={() => onGo({ thread: fresh() })}>
        New<span className="wide"> conversation</span>
      </button>
      <button type="button" className="quiet" onClick={onLeave}>
        Leave
      </button>
    </header>
  );
}
