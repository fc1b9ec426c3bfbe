import { CopilotChat, CopilotKit, useAgent } from "@copilotkit/react-core/v2";
import type { Place } from "./address";
import { Beside } from "./Beside";
import { BookCall } from "./BookCall";
import type { Agent, Desk } from "./desk";
import { Greeting } from "./Greeting";
import { Headless } from "./Headless";
import { Held } from "./Held";
import { InChat } from "./InChat";
import { useSay } from "./say";
import { Strip } from "./Strip";
import { useToolCalls } from "./tool-calls";

interface Props {
  desk: Desk;
  agent: Agent;
  place: Place;
}

/** The runtime is the desk itself: no Node server stands in between. */
export function Conversation({ desk, agent, place }: Props) {
  const headers = place.hold ? { ...desk.headers, "X-Sayso-Hold": "1" } : desk.headers;
  return (
    <CopilotKit
      runtimeUrl={`${desk.url}/copilotkit`}
      headers={headers}
      agent={place.agent}
      threadId={place.thread}
      enableInspector={false}
      showDevConsole={false}
    >
      <Room agent={agent} place={place} />
    </CopilotKit>
  );
}

const APPROVALS = { "in-chat": InChat, beside: Beside, headless: Headless };

function Room({ agent, place }: Omit<Props, "desk">) {
  const Approvals = APPROVALS[place.way];
  const { agent: talk } = useAgent();
  const say = useSay();
  useToolCalls();

  const waits = talk.pendingInterrupts.length > 0;

  return (
    <main className="room" data-way={place.way}>
      <BookCall />
      <Strip />
      <div className="chat">
        <CopilotChat
          labels={{
            chatInputPlaceholder: `Message ${place.agent}`,
            chatDisclaimerText: waits
              ? "A message now reaches the agent after the open request."
              : "What needs an approval waits for one.",
          }}
          input={{ addMenuButton: Nothing, ...(waits && { onSubmitMessage: say }) }}
        />
        <Greeting to={agent} />
      </div>
      <aside className="side">
        <Held />
        <Approvals />
      </aside>
    </main>
  );
}

/** The desk takes text only, so there is nothing to add to a message. */
function Nothing() {
  return null;
}
