import { useCallback, useEffect, useState } from "react";
import { settle, usePlace } from "./address";
import { Bar } from "./Bar";
import { Conversation } from "./Conversation";
import { type Access, type Desk, forget, reach, remember, remembered } from "./desk";
import { Entrance } from "./Entrance";

export function App() {
  const [desk, setDesk] = useState<Desk | null>(null);
  const [problem, setProblem] = useState("");
  const [signedIn, setSignedIn] = useState(false);
  const [waiting, setWaiting] = useState(() => remembered() !== null);

  const enter = useCallback(async (access: Access) => {
    setWaiting(true);
    setProblem("");
    try {
      setDesk(await reach(access));
      remember(access);
      if (!access.token) setSignedIn(true);
    } catch (error) {
      setProblem((error as Error).message);
    }
    setWaiting(false);
  }, []);

  useEffect(() => {
    const access = remembered();
    if (access) void enter(access);
  }, [enter]);

  const leave = () => {
    forget();
    setDesk(null);
  };

  if (desk) return <Inside desk={desk} onLeave={leave} />;
  return (
    <Entrance problem={problem} signedIn={signedIn} waiting={waiting} onEnter={enter} />
  );
}

function Inside({ desk, onLeave }: { desk: Desk; onLeave: () => void }) {
  const [slugs] = useState(() => desk.agents.map(({ slug }) => slug));
  const [place, go] = usePlace(slugs);
  useEffect(() => settle(place), [place]);
  const agent = desk.agents.find(({ slug }) => slug === place.agent);

  return (
    <div className="page">
      <Bar agents={desk.agents} place={place} onGo={go} onLeave={onLeave} />
      {/* Another place is another conversation: nothing of this one may linger. */}
      {agent && (
        <Conversation
          key={JSON.stringify(place)}
          desk={desk}
          agent={agent}
          place={place}
        />
      )}
    </div>
  );
}
