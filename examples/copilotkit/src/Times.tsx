/** A time to choose, by its day. */

export interface Time extends Record<string, unknown> {
  chosen_time: string;
  chosen_label: string;
}

interface Props {
  times: string[];
  chosen: Time | null;
  onChoose: (time: Time) => void;
}

// In the zone the desk speaks of, which an ISO time carries.
const DAY = new Intl.DateTimeFormat("en-GB", {
  weekday: "long",
  day: "numeric",
  month: "long",
  timeZone: "UTC",
});

export function Times({ times, chosen, onChoose }: Props) {
  const days = Map.groupBy(times, (iso) => day(iso));
  return (
    <div className="times" role="group" aria-label="When">
      {[...days].map(([name, ofDay]) => (
        <div key={name}>
          <h3>{name}</h3>
          {ofDay.map((iso) => (
            <button
              key={iso}
              type="button"
              aria-pressed={iso === chosen?.chosen_time}
              aria-label={label(iso)}
              onClick={() => onChoose({ chosen_time: iso, chosen_label: label(iso) })}
            >
              {clock(iso)}
            </button>
          ))}
        </div>
      ))}
    </div>
  );
}

const day = (iso: string) => DAY.format(new Date(`${iso.slice(0, 10)}T00:00Z`));
const clock = (iso: string) => iso.slice(11, 16);
const label = (iso: string) => `${day(iso)}, ${clock(iso)}`;
