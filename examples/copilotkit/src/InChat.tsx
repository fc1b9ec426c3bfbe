import { useInterrupt } from "@copilotkit/react-core/v2";
import { Requests } from "./Requests";
import { handing } from "./requests";

/** Approvals as part of the conversation. */
export function InChat() {
  useInterrupt({
    render: ({ interrupts, resolve, cancel }) => (
      <Requests interrupts={interrupts} onAnswer={handing(resolve, cancel)} />
    ),
  });
  return null;
}
