import { type Interrupt, useAgent, useCopilotKit } from "@copilotkit/react-core/v2";
import { useEffect, useRef, useState } from "react";
import { Requests } from "./Requests";
import type { Answer } from "./requests";

/**
 * Approvals without the hook: the open interrupts are heard of, and the answers are a run.
 * More to write, and nothing is hidden: each answer can say what it was given to.
 */
export function Headless() {
  const { agent } = useAgent();
  const { copilotkit } = useCopilotKit();
  const [open, setOpen] = useState<Interrupt[]>([]);
  const answers = useRef<Record<string, Answer>>({});

  useEffect(() => {
    const heard = agent.subscribe({
      onRunStartedEvent: () => setOpen([]),
      onRunFinishedEvent: (finished) => {
        answers.current = {};
        setOpen(finished.outcome === "interrupt" ? finished.interrupts : []);
      },
    });
    return () => heard.unsubscribe();
  }, [agent]);

  const answer = (id: string, said: Answer) => {
    answers.current[id] = said;
    if (open.some((interrupt) => !answers.current[interrupt.id])) return;
    const resume = open.map((interrupt) => ({
      interruptId: interrupt.id,
      ...answers.current[interrupt.id]!,
      // So that it counts for what was shown, and for nothing else.
      metadata: { sayso: { digest: interrupt.metadata?.sayso?.digest } },
    }));
    copilotkit.runAgent({ agent, resume }).catch(() => {});
  };

  if (open.length === 0) return null;
  return <Requests interrupts={open} onAnswer={answer} />;
}
