from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('hitlagents', '0008_agui'),
    ]

    operations = [
        migrations.AddField(
            model_name='queuedmessage',
            name='client_tools',
            field=models.TextField(blank=True, default='', help_text='Tools of the page it came from, JSON.'),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='runinput',
            name='client_tools',
            field=models.TextField(blank=True, default='', help_text='Tools of the page it came from, JSON.'),
            preserve_default=False,
        ),
    ]
