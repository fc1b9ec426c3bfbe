import { useAgent } from "@copilotkit/react-core/v2";
import type { Agent } from "./desk";
import { useSay } from "./say";

/** Something to begin with, for each agent of the demo. */
const BEGINNINGS: Record<string, string[]> = {
  "file-ops": ["Please delete report.txt", "Please delete report.txt and notes.md"],
  scheduler: [
    "Please schedule a 1:1 with Alice",
    "Please book an intro call with sales to discuss pricing",
  ],
};

export function Greeting({ to }: { to: Agent }) {
  const { agent, isReady } = useAgent();
  const say = useSay();

  if (agent.messages.length > 0) return null;

  return (
    <div className="greeting">
      <h2>{to.slug}</h2>
      <p>{to.description}</p>
      {isReady && (
        <div>
          {BEGINNINGS[to.slug]?.map((text) => (
            <button key={text} onClick={() => say(text)}>
              {text}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
