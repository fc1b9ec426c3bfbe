import { useAgent, useCopilotKit } from "@copilotkit/react-core/v2";
import { useEffect, useState } from "react";

/** How the conversation stands, what went wrong with it, and the button that looks again. */
export function Strip() {
  const { agent } = useAgent();
  const { copilotkit } = useCopilotKit();
  const problem = useProblem();

  // A page is not told of what others decide on the desk once its run is over.
  const look = () => {
    // CopilotKit connects no agent that waits for an answer of this page.
    agent.pendingInterrupts = [];
    copilotkit.connectAgent({ agent }).catch(() => {});
  };

  const open = agent.pendingInterrupts.length;
  const state = agent.isRunning ? "running" : open > 0 ? "open" : "resting";
  const words = {
    running: "At work…",
    open: `${open} open ${open === 1 ? "request" : "requests"}`,
    resting: "At rest",
  };

  return (
    <div className="strip">
      <span className="state" data-state={state}>
        {words[state]}
      </span>
      <button className="quiet" onClick={look} disabled={agent.isRunning}>
        Look again
      </button>
      {problem && (
        <p className="problem" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

/** What went wrong with the last run, in the desk's words. */
function useProblem(): string {
  const { agent } = useAgent({ updates: [] });
  const { copilotkit } = useCopilotKit();
  const [problem, setProblem] = useState("");

  useEffect(() => {
    const core = copilotkit.subscribe({
      onError: ({ error }) => setProblem(worded(error.message)),
    });
    const runs = agent.subscribe({ onRunStartedEvent: () => setProblem("") });
    return () => {
      core.unsubscribe();
      runs.unsubscribe();
    };
  }, [agent, copilotkit]);

  return problem;
}

/** A refusal is JSON behind its status: `HTTP 422: {"error": {"message": …}}`. */
function worded(message: string): string {
  try {
    return JSON.parse(message.slice(message.indexOf("{"))).error.message;
  } catch {
    return message;
  }
}
