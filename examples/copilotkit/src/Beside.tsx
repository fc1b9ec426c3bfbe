import { useInterrupt } from "@copilotkit/react-core/v2";
import { Requests } from "./Requests";
import { handing } from "./requests";

/** Approvals anywhere on the page: the hook returns what it would put into the chat. */
export function Beside() {
  return useInterrupt({
    renderInChat: false,
    render: ({ interrupts, resolve, cancel }) => (
      <Requests interrupts={interrupts} onAnswer={handing(resolve, cancel)} />
    ),
  });
}
