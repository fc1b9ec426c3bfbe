// Runs before the first paint (classic script, in the head): the theme the reader chose, else the system's.
(() => {
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');
  const paint = () => {
    root.dataset.bsTheme = localStorage.getItem('theme') ?? (system.matches ? 'dark' : 'light');
  };
  paint();
  system.addEventListener('change', paint);
  document.addEventListener('click', (event) => {
    if (!event.target.closest('[data-theme-switch]')) return;
    localStorage.setItem('theme', root.dataset.bsTheme === 'dark' ? 'light' : 'dark');
    paint();
  });
})();
