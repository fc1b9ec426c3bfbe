// Demo sign-in: a click on an account fills the form. Without JavaScript the list is just a list.
for (const button of document.querySelectorAll('[data-fill-user]')) {
  button.hidden = false;
  button.addEventListener('click', () => {
    document.querySelector('#id_username').value = button.dataset.fillUser;
    document.querySelector('#id_password').value = button.dataset.fillPassword;
    document.querySelector('#sign-in').focus();
  });
}
