import { useAgent, useHumanInTheLoop } from "@copilotkit/react-core/v2";
import { useState } from "react";
import { z } from "zod";
import { type Time, Times } from "./Times";

const call = z.object({
  topic: z.string().describe("What the call is about."),
  attendee: z.string().describe("Who the call is with."),
});

/**
 * A tool of this page: the agent calls it, the person picks a time, and that is its result.
 * Nothing runs for it on the desk.
 */
export function BookCall() {
  useHumanInTheLoop({
    name: "book_call",
    description: "Ask the person when a call suits them. Nothing is booked by it.",
    parameters: call,
    render: ({ args, status, respond, result, toolCallId }) => (
      <When
        id={toolCallId}
        topic={args.topic ?? "…"}
        attendee={args.attendee ?? "…"}
        result={status === "complete" ? result : ""}
        onAnswer={respond}
      />
    ),
  });
  return null;
}

interface Props {
  id: string;
  topic: string;
  attendee: string;
  result: string;
  onAnswer: ((answer: unknown) => void) | undefined;
}

function When({ id, topic, attendee, result, onAnswer }: Props) {
  const { agent } = useAgent();
  const [times] = useState(proposed);
  const [time, setTime] = useState<Time | null>(null);

  // Where no page brought the tool, the desk asks by itself, and waits for its own card.
  const open = agent.pendingInterrupts;
  if (open.some(({ toolCallId }) => toolCallId === id)) return null;
  // CopilotKit sends no result of a tool while a request is open.
  const waits = !onAnswer || open.length > 0;

  return (
    <article className="card request" data-tool="book_call">
      <header>
        <h2>When does a call suit you?</h2>
      </header>
      <p>
        “{topic}” with {attendee}
      </p>
      {result ? (
        <p role="status">{chosen(result)}</p>
      ) : (
        <>
          <Times times={times} chosen={time} onChoose={setTime} />
          <footer>
            <button
              className="primary"
              disabled={waits || !time}
              onClick={() => onAnswer?.(time)}
            >
              Pick this time
            </button>
            <button disabled={waits} onClick={() => onAnswer?.({ cancelled: true })}>
              None of these
            </button>
            {open.length > 0 && <span>After the open request.</span>}
          </footer>
        </>
      )}
    </article>
  );
}

function chosen(result: string): string {
  try {
    return JSON.parse(result).chosen_label ?? "None of the times suited.";
  } catch {
    return result;
  }
}

/** Two times on each of the next three working days. */
function proposed(): string[] {
  const found: string[] = [];
  const day = new Date();
  while (found.length < 6) {
    day.setDate(day.getDate() + 1);
    if (day.getDay() === 0 || day.getDay() === 6) continue;
    found.push(local(day, "10:00"), local(day, "14:30"));
  }
  return found;
}

/** That time of that day here, as ISO 8601 with its offset. */
function local(day: Date, clock: string): string {
  const pad = (number: number) => String(number).padStart(2, "0");
  const date = `${day.getFullYear()}-${pad(day.getMonth() + 1)}-${pad(day.getDate())}`;
  const ahead = -new Date(`${date}T${clock}`).getTimezoneOffset();
  const [hours, minutes] = [Math.trunc(Math.abs(ahead) / 60), Math.abs(ahead) % 60];
  return `${date}T${clock}:00${ahead < 0 ? "-" : "+"}${pad(hours)}:${pad(minutes)}`;
}
