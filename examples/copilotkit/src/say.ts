import { useAgent, useCopilotKit } from "@copilotkit/react-core/v2";

/** Say something by the page itself, also while requests are open. */
export function useSay(): (content: string) => void {
  const { agent } = useAgent();
  const { copilotkit } = useCopilotKit();

  return (content) => {
    // The client sends no message while it counts a request as open. The desk keeps it for the
    // agent, and ends the run with the same requests.
    agent.pendingInterrupts = [];
    agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
    // What goes wrong is told by <Strip>.
    copilotkit.runAgent({ agent }).catch(() => {});
  };
}
