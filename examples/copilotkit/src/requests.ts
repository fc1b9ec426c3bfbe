import type {
  Interrupt,
  InterruptCancelFn,
  InterruptResolveFn,
} from "@copilotkit/react-core/v2";

/** What an interrupt asks, out of the shape its framework gives it. */
export interface Asked {
  title: string;
  tool: string;
  arguments: Record<string, unknown>;
  /** Nothing runs for a question: the answer is all there is. */
  isQuestion: boolean;
  /** The times to choose from, where one is wanted. */
  times: string[] | null;
  /** The request on the desk, for whoever may decide it there. */
  url: string;
}

export type Answer =
  | { status: "resolved"; payload: Record<string, unknown> }
  | { status: "cancelled" };

/** Hands answers to `useInterrupt`, which sends all of them with the last one. */
export function handing(resolve: InterruptResolveFn, cancel: InterruptCancelFn) {
  return (id: string, answer: Answer) => {
    const sent = answer.status === "resolved" ? resolve(answer.payload, id) : cancel(id);
    // What goes wrong is told by <Strip>.
    sent.catch(() => {});
  };
}

export function read(interrupt: Interrupt): Asked {
  const metadata = interrupt.metadata ?? {};
  const call = called(metadata);
  const properties = interrupt.responseSchema?.properties ?? {};
  const time = properties.chosen_time;
  return {
    title: interrupt.message || `Approve running ${call.name}?`,
    tool: call.name,
    arguments: call.arguments,
    isQuestion: !("approved" in properties),
    times: time ? (time.examples ?? []) : null,
    url: metadata.sayso?.url ?? "",
  };
}

interface Call {
  name: string;
  arguments: Record<string, unknown>;
}

/** Every framework has a key of its own in the metadata, with the call in one shape. */
function called(metadata: Record<string, any>): Call {
  const found = Object.values(metadata).find((value) => value?.function_call);
  const call = found?.function_call;
  return { name: call?.name ?? "", arguments: call?.arguments ?? {} };
}
